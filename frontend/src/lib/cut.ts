// Where something that is scrolled is cut: its edge fades there (style.css), for browsers that hide their scroll bars.

/** The sides behind which there is more, as the attribute says them. */
export function sides(
  node: Pick<HTMLElement, "scrollLeft" | "scrollTop" | "clientWidth" | "clientHeight" | "scrollWidth" | "scrollHeight">,
): string {
  const right = node.scrollLeft + node.clientWidth < node.scrollWidth - 1; // of which browsers round each
  const bottom = node.scrollTop + node.clientHeight < node.scrollHeight - 1;
  return [right && "right", bottom && "bottom"].filter(Boolean).join(" ");
}

/** An attachment for an element that is scrolled. */
export function cut(node: HTMLElement): () => void {
  const say = (): void => {
    node.dataset.cut = sides(node);
  };
  const sizes = new ResizeObserver(say);
  const watch = (): void => {
    sizes.disconnect();
    for (const one of [node, ...node.children]) sizes.observe(one);
  };
  const children = new MutationObserver(watch);
  children.observe(node, { childList: true });
  node.addEventListener("scroll", say, { passive: true });
  watch();
  return () => {
    sizes.disconnect();
    children.disconnect();
    node.removeEventListener("scroll", say);
  };
}
