// The sections of the navigation, in order.

import {
  Activity,
  Bot,
  type LucideIcon,
  MessageCircle,
  Newspaper,
  Search,
  Settings,
  ShieldAlert,
  Users,
} from "lucide-react";
import type { Section } from "../page/router";

/** A section of the navigation. Its first page is `/<id>`. */
export interface SectionInfo {
  id: Section;
  icon: LucideIcon;
  /** Only for administrators of the server. */
  isAdmin?: boolean;
  /** Shown at the end of the navigation rail. */
  isLast?: boolean;
}

/** The sections. */
export const SECTIONS: readonly SectionInfo[] = [
  { id: "chats", icon: MessageCircle },
  { id: "timeline", icon: Newspaper },
  { id: "people", icon: Users },
  { id: "companions", icon: Bot },
  { id: "search", icon: Search },
  { id: "moderation", icon: ShieldAlert, isAdmin: true, isLast: true },
  { id: "operations", icon: Activity, isAdmin: true, isLast: true },
  { id: "settings", icon: Settings, isLast: true },
];
