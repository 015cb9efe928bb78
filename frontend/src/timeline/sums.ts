// Words about sums by module.

export const SELF =
  "Time of what the module's own code launched, without that of modules inside it; operators as a tree or a flame graph have both";
