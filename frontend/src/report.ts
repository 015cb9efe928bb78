// The page with its data in the same file, as `pyprof page` writes it: nothing is asked for.
import { mount } from "svelte";
import { use } from "./api/client";
import { embedded } from "./api/inline";
import App from "./shell/App.svelte";
import "./style.css";

void embedded().then((data) => {
  use(data);
  mount(App, { target: document.getElementById("app")! });
});
