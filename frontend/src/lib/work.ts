/** How well kernels use the device, for tables of operators and of kernels. HFU is in the menu of columns. */
export const WORK = ["efficiency", "mfu", "bound", "tcwhy"] as const;
