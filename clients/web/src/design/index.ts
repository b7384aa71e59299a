// Base components, for all pages.

export { Avatar, getHue, getInitials } from "./Avatar";
export { Badge, Label } from "./Badge";
export { Button, IconButton } from "./Button";
export { classes } from "./classes";
export { ConfirmDialog, Dialog } from "./Dialog";
export { EmptyState, ErrorState } from "./EmptyState";
export { Menu, type MenuAnchor, MenuButton, type MenuItem } from "./Menu";
export { SkeletonRows, SkeletonText } from "./Skeleton";
export { Switch } from "./Switch";
export { Tabs } from "./Tabs";
export { Select, TextArea, TextField } from "./TextField";
export { showToast, Toaster } from "./Toast";
export { Tooltips } from "./Tooltip";
