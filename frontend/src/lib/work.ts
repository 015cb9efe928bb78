/** How well kernels use the device, for tables of operators and of kernels. HFU is in the menu of columns. */
export const WORK = ["efficiency", "mfu", "bound", "tcwhy"] as const;
/** The column that says why a figure is unknown in a row. */
export const WHY: Record<string, string> = { efficiency: "roofline_why", mfu: "roofline_why", bound: "roofline_why" };
