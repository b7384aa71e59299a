/**
 * tierchat/react: hooks and unstyled components for React 19.
 *
 * Start with {@link ChatProvider}.
 *
 * @packageDocumentation
 */

export type { ChatListView } from "./chat_list.js";
export type { Connection } from "./client_store.js";
export type { ResponseProgress } from "./companion_progress.js";
export { ChatList, type ChatListProps } from "./components/chat_list.js";
export { CompanionView, type CompanionViewProps } from "./components/companion_view.js";
export { Composer, type ComposerProps } from "./components/composer.js";
export { MessageList, type MessageListProps } from "./components/message_list.js";
export { MemberList, type MemberListProps, PresenceDot } from "./components/people.js";
export { ReplyView, type ReplyViewProps } from "./components/reply_view.js";
export {
  type CompanionResponse,
  useAllPreferences,
  useChat,
  useChatList,
  useChats,
  useCompanionResponse,
  useConnection,
  useDraft,
  useEvent,
  useHasDraft,
  useMembers,
  useMessages,
  usePinnedChats,
  usePreferences,
  usePresence,
  useSendTyping,
  useTyping,
  useUnread,
} from "./hooks.js";
export { ENGLISH, type Labels } from "./labels.js";
export type { Member } from "./members.js";
export type { FailedOperation, MessagesView } from "./message_window.js";
export type { Presence } from "./presence.js";
export { ChatProvider, type ChatProviderProps, useClient } from "./provider.js";
export { type Upload, type Uploads, useUpload } from "./uploads.js";
