// Generated from docs/openapi.json by scripts/generate_types.mjs. Do not edit.

/** Schema `AccountDeletion` of the API. */
export interface AccountDeletion {
  password?: string | null;
}

/** Schema `Ai` of the API. */
export interface Ai {
  code?: string;
  end?: string;
  model: string;
  tokens_in?: number;
  tokens_out?: number;
  tools?: string[];
}

/** Schema `AnyUser` of the API. */
export interface AnyUser {
  about: string | null;
  created: number;
  is_banned: boolean;
  name: string | null;
  user: string;
}

/** Schema `Attachment` of the API. */
export interface Attachment {
  height?: number | null;
  id: string;
  name: string;
  size: number;
  thumb?: boolean;
  type: string;
  width?: number | null;
}

/** Schema `AuditFinding` of the API. */
export interface AuditFinding {
  advice: string;
  at_ms: number;
  category: string;
  chat: string;
  first: number;
  kind: string;
  last: number;
  meaning: string;
  where: string;
}

/** Schema `AuditReport` of the API. */
export interface AuditReport {
  audited: number;
  chats: number;
  entries: number;
  failed: number;
  findings: number;
  latest: AuditFinding[];
  newest_ms: number | null;
  oldest_ms: number | null;
  partitions: number;
  unverified: number;
}

/** Schema `Backlog` of the API. */
export interface Backlog {
  age_s: number;
  entries: number;
  worst?: Waiting[];
}

/** Schema `BannedUser` of the API. */
export interface BannedUser {
  by: string;
  since: number;
  user: string;
}

/** Schema `BannedUserPage` of the API. */
export interface BannedUserPage {
  items: BannedUser[];
  next?: string | null;
}

/** Schema `BlockedUser` of the API. */
export interface BlockedUser {
  since: number;
  user: string;
}

/** Schema `BlockedUserPage` of the API. */
export interface BlockedUserPage {
  items: BlockedUser[];
  next?: string | null;
}

/** Schema `Broadcast` of the API. */
export interface Broadcast {
  broadcast: string;
  done: number;
  failed: number;
  state: string;
  total: number;
}

/** Schema `BusyChat` of the API. */
export interface BusyChat {
  chat: string;
  messages: number;
  per_s: number;
}

/** Schema `ChatChanges` of the API. */
export interface ChatChanges {
  history?: "joined" | "all" | null;
  joining?: "invited" | "open" | null;
  name?: string | null;
  picture?: string | null;
  ref?: string | null;
  retention_s?: number | null;
  slow_s?: number | null;
  topic?: string | null;
}

/** Schema `ChatInfo` of the API. */
export interface ChatInfo {
  blocked?: boolean;
  chat: string;
  count?: number;
  ended?: boolean;
  history?: "joined" | "all";
  invited?: string[];
  joining?: "invited" | "open";
  kind: "direct" | "group" | "companion";
  large?: boolean;
  members: string[];
  muted?: Record<string, number>;
  name?: string | null;
  picture?: string | null;
  retention_s?: number;
  roles?: Record<string, "owner" | "admin" | "member">;
  since?: number | null;
  slow_s?: number;
  topic?: string | null;
}

/** Schema `ChatNotifications` of the API. */
export interface ChatNotifications {
  quiet: boolean;
  until?: number | null;
}

/** Schema `ChatPreferences` of the API. */
export interface ChatPreferences {
  archived?: boolean;
  chat: string;
  cleared_upto?: number;
  draft?: Draft | null;
  marked_unread?: boolean;
  muted_until?: number | null;
  rev?: number;
}

/** Schema `ChatPreferencesPage` of the API. */
export interface ChatPreferencesPage {
  items: ChatPreferences[];
  next?: string | null;
}

/** Schema `ChatSummary` of the API. */
export interface ChatSummary {
  chat: string;
  ended?: boolean;
  hidden?: number[];
  kind: "direct" | "group" | "companion";
  last?: Message | null;
  members?: string[];
  name?: string | null;
  peer?: Marks | null;
  picture?: string | null;
  read?: number;
  top?: number;
  unread?: number;
}

/** Schema `ChatSummaryPage` of the API. */
export interface ChatSummaryPage {
  items: ChatSummary[];
  next?: string | null;
}

/** Schema `ClientConfig` of the API. */
export interface ClientConfig {
  demo_users: string[];
  file_bytes_max: number;
  gateway_url: string;
  local_accounts?: boolean;
  push_key: string | null;
  registration?: boolean;
}

/** Schema `CompanionChanges` of the API. */
export interface CompanionChanges {
  answer_tokens_max?: number | null;
  context_tokens_max?: number | null;
  model?: string | null;
  name?: string | null;
  options?: CompanionOptions | null;
  prompt?: string | null;
  provider?: "bedrock" | "openai" | "scripted" | null;
  version?: number | null;
}

/** Schema `CompanionInfo` of the API. */
export interface CompanionInfo {
  id: string;
  name: string;
  version: number;
}

/** Schema `CompanionInfoPage` of the API. */
export interface CompanionInfoPage {
  items: CompanionInfo[];
  next?: string | null;
}

/** Schema `CompanionOptions` of the API. */
export interface CompanionOptions {
  guardrail?: string | null;
  guardrail_version?: string | null;
  images_max?: number;
  memory?: boolean;
  moderation_model?: string | null;
  temperature?: number | null;
  tools?: (Tool | unknown)[];
  top_p?: number | null;
}

/** Schema `CostReport` of the API. */
export interface CostReport {
  billing: string;
  chats: FeatureCost[];
  days: DayCost[];
  prices_as_of: string;
  read_unit_usd: number | null;
  region: string;
  write_unit_usd: number | null;
}

/** Schema `Count` of the API. */
export interface Count {
  name: string;
  per_s: number;
}

/** Schema `DayCost` of the API. */
export interface DayCost {
  day: string;
  features: FeatureCost[];
  messages: number;
  usd: number | null;
  usd_per_message: number | null;
}

/** Schema `Device` of the API. */
export interface Device {
  created: number;
  device: string;
  is_current: boolean;
  name: string | null;
  seen: number;
}

/** Schema `DevicePage` of the API. */
export interface DevicePage {
  items: Device[];
  next?: string | null;
}

/** Schema `Draft` of the API. */
export interface Draft {
  text: string;
  version: number;
}

/** Schema `Export` of the API. */
export interface Export {
  created: number;
  expires?: number | null;
  export: string;
  progress: number;
  size?: number | null;
  state: "waiting" | "running" | "ready" | "failed";
  url?: string | null;
  url_expires_s?: number | null;
  why?: string;
}

/** Schema `FavoriteMessage` of the API. */
export interface FavoriteMessage {
  message: Message;
  saved: number;
}

/** Schema `FavoriteMessagePage` of the API. */
export interface FavoriteMessagePage {
  items: FavoriteMessage[];
  next?: string | null;
}

/** Schema `FavoritePost` of the API. */
export interface FavoritePost {
  post: PostInfo;
  saved: number;
}

/** Schema `FavoritePostPage` of the API. */
export interface FavoritePostPage {
  items: FavoritePost[];
  next?: string | null;
}

/** Schema `FeatureCost` of the API. */
export interface FeatureCost {
  feature: string;
  read_units: number;
  usd: number | null;
  write_units: number;
}

/** Schema `FileLink` of the API. */
export interface FileLink {
  attachment: Attachment;
  expires_s: number;
  looked_at: boolean;
  url: string;
}

/** Schema `FileUsage` of the API. */
export interface FileUsage {
  bytes: number;
  bytes_max: number;
  day_bytes_max: number;
  left_today: number;
  unsent: number;
  unsent_max: number;
}

/** Schema `Follower` of the API. */
export interface Follower {
  name: string | null;
  since: number;
  user: string;
}

/** Schema `FollowerPage` of the API. */
export interface FollowerPage {
  items: Follower[];
  next?: string | null;
}

/** Schema `Granted` of the API. */
export interface Granted {
  device: string;
  device_token?: string | null;
  expires_at: number;
  expires_in_s: number;
  refresh_token?: string | null;
  token: string;
  user: string;
}

/** Schema `GroupPreview` of the API. */
export interface GroupPreview {
  chat: string;
  count: number;
  is_member: boolean;
  name: string;
  topic: string;
}

/** Schema `Health` of the API. */
export interface Health {
  status?: string;
}

/** Schema `HeldChat` of the API. */
export interface HeldChat {
  chat: string;
}

/** Schema `HeldChatPage` of the API. */
export interface HeldChatPage {
  items: HeldChat[];
  next?: string | null;
}

/** Schema `History` of the API. */
export interface History {
  marks: Marks[];
  messages: Message[];
  more: boolean;
  stored: number;
  tier: "hot" | "warm" | "cold";
}

/** Schema `HoldInfo` of the API. */
export interface HoldInfo {
  by: string;
  chat: string;
  reason: string;
  since: number;
  state: string;
}

/** Schema `Invitation` of the API. */
export interface Invitation {
  ref?: string | null;
  role?: "admin" | "member";
  users: string[];
}

/** Schema `InvitationInfo` of the API. */
export interface InvitationInfo {
  at: number;
  chat: string;
  expires_at: number;
  inviter: string;
  name?: string | null;
}

/** Schema `InvitationInfoPage` of the API. */
export interface InvitationInfoPage {
  items: InvitationInfo[];
  next?: string | null;
}

/** Schema `LinkPreview` of the API. */
export interface LinkPreview {
  description: string;
  picture: string | null;
  site: string;
  title: string;
  url: string;
}

/** Schema `LiveSession` of the API. */
export interface LiveSession {
  device: string;
  gateway: string;
  session: string;
  started: number;
}

/** Schema `LiveSessionPage` of the API. */
export interface LiveSessionPage {
  items: LiveSession[];
  next?: string | null;
}

/** Schema `Marks` of the API. */
export interface Marks {
  read?: number;
  received?: number;
  user: string;
}

/** Schema `Me` of the API. */
export interface Me {
  about?: string | null;
  discoverable?: boolean;
  is_admin?: boolean;
  name: string | null;
  user: string;
}

/** Schema `Member` of the API. */
export interface Member {
  joined: number;
  role: "owner" | "admin" | "member";
  user: string;
}

/** Schema `MemberPage` of the API. */
export interface MemberPage {
  items: Member[];
  next?: string | null;
}

/** Schema `Memory` of the API. */
export interface Memory {
  companion: string;
  enabled: boolean;
  entries: MemoryEntry[];
}

/** Schema `MemoryEntry` of the API. */
export interface MemoryEntry {
  chats: string[];
  created: number;
  expires: number;
  id: string;
  kind: "fact" | "summary";
  text: string;
  updated: number;
}

/** Schema `MemorySwitch` of the API. */
export interface MemorySwitch {
  enabled: boolean;
}

/** Schema `Message` of the API. */
export interface Message {
  ai?: Ai | null;
  attachments?: Attachment[];
  banned?: boolean;
  body: string;
  chat: string;
  deleted?: boolean;
  edited_seq?: number;
  edited_ts?: number;
  expires_at?: number | null;
  kind: string;
  mid: string;
  muted_until?: number | null;
  name?: string | null;
  reactions?: Record<string, string>;
  ref: string;
  reply_to?: number | null;
  rev?: number;
  role?: string | null;
  sender: string;
  seq: number;
  shredded?: boolean;
  target?: number | null;
  ts: number;
  user?: string | null;
}

/** Schema `MessageContextPage` of the API. */
export interface MessageContextPage {
  messages: Message[];
  newer: boolean;
  older: boolean;
  tier: "hot" | "warm" | "cold";
}

/** Schema `MessagePage` of the API. */
export interface MessagePage {
  items: Message[];
  next?: string | null;
}

/** Schema `Mute` of the API. */
export interface Mute {
  mute_s?: number | null;
  ref?: string | null;
}

/** Schema `NewAttachment` of the API. */
export interface NewAttachment {
  name: string;
  sha256: string;
  size: number;
  type?: string;
}

/** Schema `NewBroadcast` of the API. */
export interface NewBroadcast {
  body: string;
  ref?: string | null;
  users: string[];
}

/** Schema `NewChat` of the API. */
export interface NewChat {
  members: string[];
  name?: string | null;
  ref?: string | null;
}

/** Schema `NewCompanion` of the API. */
export interface NewCompanion {
  answer_tokens_max?: number;
  context_tokens_max?: number;
  id?: string | null;
  model: string;
  name: string;
  options?: CompanionOptions;
  prompt?: string;
  provider: "bedrock" | "openai" | "scripted";
}

/** Schema `NewHold` of the API. */
export interface NewHold {
  reason: string;
}

/** Schema `NewMarks` of the API. */
export interface NewMarks {
  read?: number | null;
  received?: number | null;
}

/** Schema `NewMessage` of the API. */
export interface NewMessage {
  attachments?: string[];
  body: string;
  durability?: "hot" | "stored";
  expires_s?: number | null;
  kind?: string;
  ref?: string | null;
  reply_to?: number | null;
}

/** Schema `NewPassword` of the API. */
export interface NewPassword {
  password: string;
}

/** Schema `NewPinnedChats` of the API. */
export interface NewPinnedChats {
  chats: string[];
  if_rev?: number | null;
}

/** Schema `NewPost` of the API. */
export interface NewPost {
  content: string;
  image?: string | null;
}

/** Schema `NewPushSubscription` of the API. */
export interface NewPushSubscription {
  endpoint?: string | null;
  expirationTime?: number | null;
  keys?: PushKeys | null;
  kind?: "web" | "fcm" | "apns" | null;
  token?: string | null;
}

/** Schema `NewReaction` of the API. */
export interface NewReaction {
  emoji: string;
  ref?: string | null;
  target_ref?: string | null;
}

/** Schema `NewReport` of the API. */
export interface NewReport {
  reason?: string;
}

/** Schema `NewRetention` of the API. */
export interface NewRetention {
  retention_s: number;
}

/** Schema `NewRole` of the API. */
export interface NewRole {
  ref?: string | null;
  role: "owner" | "admin" | "member";
}

/** Schema `NewSession` of the API. */
export interface NewSession {
  ref?: string | null;
}

/** Schema `NewText` of the API. */
export interface NewText {
  body: string;
  ref?: string | null;
  target_ref?: string | null;
}

/** Schema `NewUser` of the API. */
export interface NewUser {
  name?: string | null;
  user: string;
}

/** Schema `NewVersion` of the API. */
export interface NewVersion {
  version?: number | null;
}

/** Schema `OpenSession` of the API. */
export interface OpenSession {
  chat: ChatInfo;
  session: SessionInfo;
}

/** order of results: `newest` first, or by `relevance` */
export type Order = "newest" | "relevance";

/** Schema `Overview` of the API. */
export interface Overview {
  backlog: Backlog | null;
  closes: Count[];
  every_ms: number;
  limited: Count[];
  now_ms: number;
  points: Point[];
  processes: Process[];
  queues: Queue[];
  refused: Count[];
  slow: SlowClose[];
  top_chats: BusyChat[];
  units: Units[];
}

/** Schema `PasswordChange` of the API. */
export interface PasswordChange {
  current: string;
  password: string;
}

/** Schema `PasswordLogin` of the API. */
export interface PasswordLogin {
  cookie?: boolean;
  device?: string | null;
  device_token?: string | null;
  password: string;
  user: string;
}

/** Schema `Person` of the API. */
export interface Person {
  about: string | null;
  name: string | null;
  user: string;
}

/** Schema `Persona` of the API. */
export interface Persona {
  answer_tokens_max: number;
  context_tokens_max: number;
  created: number;
  deleted: boolean;
  id: string;
  model: string;
  name: string;
  options: CompanionOptions;
  prompt: string;
  provider: "bedrock" | "openai" | "scripted";
  version: number;
}

/** Schema `Persons` of the API. */
export interface Persons {
  items: Person[];
}

/** Schema `Picture` of the API. */
export interface Picture {
  image: string;
}

/** Schema `PinnedChats` of the API. */
export interface PinnedChats {
  chats: string[];
  rev?: number;
}

/** Schema `PinnedMessage` of the API. */
export interface PinnedMessage {
  message: Message;
  pinned_at: number;
}

/** Schema `PinnedMessagePage` of the API. */
export interface PinnedMessagePage {
  items: PinnedMessage[];
  next?: string | null;
}

/** Schema `Placed` of the API. */
export interface Placed {
  dup: boolean;
  durability: "hot" | "stored";
  mid: string;
  ref: string;
  seq: number;
  ts: number;
}

/** Schema `Point` of the API. */
export interface Point {
  at_ms: number;
  backlog: number | null;
  backlog_age_s: number | null;
  connections: number;
  delivery_p50_ms: number | null;
  delivery_p99_ms: number | null;
  http_per_s: number;
  loop_p99_ms: number | null;
  persist_p99_ms: number | null;
  persisted_per_s: number;
  processes: number;
  pushes_per_s: number;
  queue_bytes: number;
  read_units_per_s: number;
  refused_per_s: number;
  send_p50_ms: number | null;
  send_p99_ms: number | null;
  sends_per_s: number;
  sessions: number;
  slow_closes: number;
  write_units_per_s: number;
}

/** Schema `PostChanges` of the API. */
export interface PostChanges {
  content?: string;
  image?: string | null;
}

/** Schema `PostInfo` of the API. */
export interface PostInfo {
  content: string;
  created: number;
  edited: number | null;
  favorite: boolean;
  id: string;
  image: string | null;
  liked: boolean;
  likes: number;
  name: string | null;
  user: string;
}

/** Schema `PostInfoPage` of the API. */
export interface PostInfoPage {
  items: PostInfo[];
  next?: string | null;
}

/** Schema `PreferenceChanges` of the API. */
export interface PreferenceChanges {
  archived?: boolean;
  cleared_upto?: number;
  draft?: Draft;
  marked_unread?: boolean;
  muted_until?: number | null;
}

/** Schema `Presence` of the API. */
export interface Presence {
  last_seen: number | null;
  state: "online" | "away" | "offline";
  user: string;
}

/** Schema `Presences` of the API. */
export interface Presences {
  items: Presence[];
}

/** Body of every error response. */
export interface Problem {
  code: string;
  detail: string;
  retry_after_ms?: number | null;
  status: number;
  temporary: boolean;
  title: string;
  type: string;
}

/** Schema `Process` of the API. */
export interface Process {
  connections: number;
  cpu_share: number;
  does: string;
  host: string;
  is_stale: boolean;
  kind: string;
  loop_p99_ms: number | null;
  pid: number;
  process: string;
  reported_ms: number;
  sends_per_s: number;
  started_ms: number;
}

/** Schema `Profile` of the API. */
export interface Profile {
  about?: string | null;
  discoverable?: boolean;
  name?: string | null;
}

/** Schema `PushDevice` of the API. */
export interface PushDevice {
  created: number;
  id: string;
  kind: "web" | "fcm" | "apns";
  service: string;
}

/** Schema `PushDevicePage` of the API. */
export interface PushDevicePage {
  items: PushDevice[];
  next?: string | null;
}

/** Schema `PushKeys` of the API. */
export interface PushKeys {
  auth: string;
  p256dh: string;
}

/** Schema `Queue` of the API. */
export interface Queue {
  device: string;
  user: string;
  waiting_bytes: number;
}

/** Schema `Receipt` of the API. */
export interface Receipt {
  changed: number;
  created: number;
  receipt: string;
  state: string;
  steps: Step[];
  user: string;
  why?: string;
}

/** Schema `Reference` of the API. */
export interface Reference {
  ref?: string | null;
}

/** Schema `Refresh` of the API. */
export interface Refresh {
  refresh_token?: string | null;
}

/** Schema `Registration` of the API. */
export interface Registration {
  cookie?: boolean;
  device?: string | null;
  name?: string | null;
  password: string;
  user: string;
}

/** Schema `ReportInfo` of the API. */
export interface ReportInfo {
  at: number;
  chat: string;
  reason: string;
  reporter: string;
  resolved_by?: string | null;
  seq: number;
  state: string;
}

/** Schema `ReportInfoPage` of the API. */
export interface ReportInfoPage {
  items: ReportInfo[];
  next?: string | null;
}

/** Schema `SearchResult` of the API. */
export interface SearchResult {
  message: Message;
  snippet: Segment[];
}

/** Schema `SearchResultPage` of the API. */
export interface SearchResultPage {
  items: SearchResult[];
  next?: string | null;
}

/** Schema `Segment` of the API. */
export interface Segment {
  hit?: boolean;
  text: string;
}

/** Schema `SessionInfo` of the API. */
export interface SessionInfo {
  ai_version: number;
  chat: string;
  companion: string;
  create_time: number;
  delete_time?: number | null;
}

/** Schema `SessionInfoPage` of the API. */
export interface SessionInfoPage {
  items: SessionInfo[];
  next?: string | null;
}

/** Schema `SlowClose` of the API. */
export interface SlowClose {
  at_ms: number;
  device: string;
  user: string;
  waiting_bytes: number;
}

/** Schema `Step` of the API. */
export interface Step {
  count: number;
  step: string;
  what: string;
  where: string;
}

/** Schema `SystemChat` of the API. */
export interface SystemChat {
  members: string[];
  name?: string | null;
  ref?: string | null;
}

/** Schema `SystemMessage` of the API. */
export interface SystemMessage {
  attachments?: string[];
  body: string;
  durability?: "hot" | "stored";
  expires_s?: number | null;
  kind?: string;
  ref?: string | null;
  reply_to?: number | null;
}

/** Schema `SystemPlace` of the API. */
export interface SystemPlace {
  mid: string;
  seq: number;
  ts: number;
}

/** Schema `Tool` of the API. */
export interface Tool {
  description: string;
  input_schema: Record<string, unknown>;
  name: string;
  url: string;
}

/** Schema `Units` of the API. */
export interface Units {
  feature: string;
  read_per_s: number;
  write_per_s: number;
}

/** Schema `Upload` of the API. */
export interface Upload {
  expires_s: number;
  fields: Record<string, string>;
  id: string;
  url: string | null;
}

/** Schema `UploadedFile` of the API. */
export interface UploadedFile {
  attachment: Attachment;
  looked_at: boolean;
}

/** Schema `UserMessagesPage` of the API. */
export interface UserMessagesPage {
  archived_before?: number | null;
  items: Message[];
  next?: string | null;
}

/** Schema `UserProfile` of the API. */
export interface UserProfile {
  about: string | null;
  avatar: string | null;
  followed: boolean;
  followers: number;
  following: number;
  follows: boolean;
  name: string | null;
  posts: number;
  user: string;
}

/** Schema `Waiting` of the API. */
export interface Waiting {
  age_s: number;
  entries: number;
  partition: number;
}

/** All operations of the HTTP API: their parameters, body and result. */
export interface Operations {
  /** Accept invitation */
  accept_invitation: {
    params: {
      chat: string;
    };
    body: Reference;
    result: ChatInfo;
    isIdempotent: true;
  };
  /** Ban member */
  ban_member: {
    params: {
      chat: string;
      user: string;
      ref?: string | null;
    };
    body: undefined;
    result: ChatInfo;
    isIdempotent: false;
  };
  /** Ban user */
  ban_user: {
    params: {
      user: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Begin picture */
  begin_picture: {
    params: {};
    body: NewAttachment;
    result: Upload;
    isIdempotent: true;
  };
  /** Begin upload */
  begin_upload: {
    params: {
      chat: string;
    };
    body: NewAttachment;
    result: Upload;
    isIdempotent: true;
  };
  /** Block */
  block: {
    params: {
      user: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Change chat preferences */
  change_chat_preferences: {
    params: {
      chat: string;
    };
    body: PreferenceChanges;
    result: ChatPreferences;
    isIdempotent: false;
  };
  /** Change me */
  change_me: {
    params: {};
    body: Profile;
    result: Me;
    isIdempotent: false;
  };
  /** Change password */
  change_password: {
    params: {};
    body: PasswordChange;
    result: null;
    isIdempotent: false;
  };
  /** Complete upload */
  complete_upload: {
    params: {
      file: string;
      wait_ms?: number;
    };
    body: undefined;
    result: UploadedFile;
    isIdempotent: false;
  };
  /** Create chat */
  create_chat: {
    params: {};
    body: NewChat;
    result: ChatInfo;
    isIdempotent: true;
  };
  /** Create companion */
  create_companion: {
    params: {};
    body: NewCompanion;
    result: Persona;
    isIdempotent: true;
  };
  /** Create post */
  create_post: {
    params: {};
    body: NewPost;
    result: PostInfo;
    isIdempotent: true;
  };
  /** Create session */
  create_session: {
    params: {
      companion: string;
    };
    body: NewSession;
    result: OpenSession;
    isIdempotent: true;
  };
  /** Create system chat */
  create_system_chat: {
    params: {};
    body: SystemChat;
    result: ChatInfo;
    isIdempotent: true;
  };
  /** Create user */
  create_user: {
    params: {};
    body: NewUser;
    result: AnyUser;
    isIdempotent: true;
  };
  /** Decline invitation */
  decline_invitation: {
    params: {
      chat: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Delete any message */
  delete_any_message: {
    params: {
      chat: string;
      seq: number;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Delete avatar */
  delete_avatar: {
    params: {};
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Delete companion */
  delete_companion: {
    params: {
      companion: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Delete companion memory */
  delete_companion_memory: {
    params: {
      companion: string;
      chat?: string | null;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Delete companion memory entry */
  delete_companion_memory_entry: {
    params: {
      companion: string;
      entry: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Delete message */
  delete_message: {
    params: {
      chat: string;
      seq: number;
      for?: "all" | "me";
      target_ref?: string | null;
      ref?: string | null;
    };
    body: undefined;
    result: Placed;
    isIdempotent: false;
  };
  /** Delete post */
  delete_post: {
    params: {
      post: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Delete session */
  delete_session: {
    params: {
      companion: string;
      chat?: string | null;
      forget?: boolean;
    };
    body: undefined;
    result: SessionInfo;
    isIdempotent: false;
  };
  /** Download */
  download: {
    params: {
      file: string;
      seq?: number | null;
      thumb?: number;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Edit */
  edit: {
    params: {
      chat: string;
      seq: number;
    };
    body: NewText;
    result: Placed;
    isIdempotent: false;
  };
  /** Edit post */
  edit_post: {
    params: {
      post: string;
    };
    body: PostChanges;
    result: PostInfo;
    isIdempotent: false;
  };
  /** End device */
  end_device: {
    params: {
      device: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** End device of user */
  end_device_of_user: {
    params: {
      user: string;
      device: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** End sessions */
  end_sessions: {
    params: {
      user: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Erase me */
  erase_me: {
    params: {};
    body: AccountDeletion;
    result: Receipt;
    isIdempotent: false;
  };
  /** Erase user */
  erase_user: {
    params: {
      user: string;
    };
    body: undefined;
    result: Receipt;
    isIdempotent: false;
  };
  /** Follow */
  follow: {
    params: {
      user: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Get audit */
  get_audit: {
    params: {};
    body: undefined;
    result: AuditReport;
    isIdempotent: false;
  };
  /** Get avatar */
  get_avatar: {
    params: {
      user: string;
      thumb?: number;
    };
    body: undefined;
    result: FileLink;
    isIdempotent: false;
  };
  /** Get broadcast */
  get_broadcast: {
    params: {
      broadcast: string;
    };
    body: undefined;
    result: Broadcast;
    isIdempotent: false;
  };
  /** Get chat */
  get_chat: {
    params: {
      chat: string;
    };
    body: undefined;
    result: ChatInfo;
    isIdempotent: false;
  };
  /** Get chat picture */
  get_chat_picture: {
    params: {
      chat: string;
      thumb?: number;
    };
    body: undefined;
    result: FileLink;
    isIdempotent: false;
  };
  /** Get chat preferences */
  get_chat_preferences: {
    params: {
      chat: string;
    };
    body: undefined;
    result: ChatPreferences;
    isIdempotent: false;
  };
  /** Get client config */
  get_client_config: {
    params: {};
    body: undefined;
    result: ClientConfig;
    isIdempotent: false;
  };
  /** Get companion */
  get_companion: {
    params: {
      companion: string;
    };
    body: undefined;
    result: CompanionInfo;
    isIdempotent: false;
  };
  /** Get companion memory */
  get_companion_memory: {
    params: {
      companion: string;
    };
    body: undefined;
    result: Memory;
    isIdempotent: false;
  };
  /** Get companion version */
  get_companion_version: {
    params: {
      companion: string;
      version: number;
    };
    body: undefined;
    result: Persona;
    isIdempotent: false;
  };
  /** Get cost */
  get_cost: {
    params: {};
    body: undefined;
    result: CostReport;
    isIdempotent: false;
  };
  /** Get erasure */
  get_erasure: {
    params: {
      receipt: string;
    };
    body: undefined;
    result: Receipt;
    isIdempotent: false;
  };
  /** Get export */
  get_export: {
    params: {};
    body: undefined;
    result: Export;
    isIdempotent: false;
  };
  /** Get group preview */
  get_group_preview: {
    params: {
      chat: string;
    };
    body: undefined;
    result: GroupPreview;
    isIdempotent: false;
  };
  /** Get health */
  get_health: {
    params: {};
    body: undefined;
    result: Health;
    isIdempotent: false;
  };
  /** Get hold */
  get_hold: {
    params: {
      chat: string;
    };
    body: undefined;
    result: HoldInfo;
    isIdempotent: false;
  };
  /** Get link */
  get_link: {
    params: {
      file: string;
      seq?: number | null;
      thumb?: number;
    };
    body: undefined;
    result: FileLink;
    isIdempotent: false;
  };
  /** Get link picture */
  get_link_picture: {
    params: {
      url: string;
    };
    body: undefined;
    result: string;
    isIdempotent: false;
  };
  /** Get link preview */
  get_link_preview: {
    params: {
      url: string;
    };
    body: undefined;
    result: LinkPreview;
    isIdempotent: false;
  };
  /** Get me */
  get_me: {
    params: {};
    body: undefined;
    result: Me;
    isIdempotent: false;
  };
  /** Get message */
  get_message: {
    params: {
      chat: string;
      seq: number;
    };
    body: undefined;
    result: Message;
    isIdempotent: false;
  };
  /** Get message by mid */
  get_message_by_mid: {
    params: {
      chat: string;
      mid: string;
      seq?: number | null;
      ts?: number | null;
    };
    body: undefined;
    result: Message;
    isIdempotent: false;
  };
  /** Get notifications */
  get_notifications: {
    params: {
      chat: string;
    };
    body: undefined;
    result: ChatNotifications;
    isIdempotent: false;
  };
  /** Get overview */
  get_overview: {
    params: {
      after?: number;
    };
    body: undefined;
    result: Overview;
    isIdempotent: false;
  };
  /** Get pinned chats */
  get_pinned_chats: {
    params: {};
    body: undefined;
    result: PinnedChats;
    isIdempotent: false;
  };
  /** Get post */
  get_post: {
    params: {
      user: string;
      post: string;
    };
    body: undefined;
    result: PostInfo;
    isIdempotent: false;
  };
  /** Get post image */
  get_post_image: {
    params: {
      user: string;
      post: string;
      thumb?: number;
    };
    body: undefined;
    result: FileLink;
    isIdempotent: false;
  };
  /** Get presence */
  get_presence: {
    params: {
      user: string[];
    };
    body: undefined;
    result: Presences;
    isIdempotent: false;
  };
  /** Get profile */
  get_profile: {
    params: {
      user: string;
    };
    body: undefined;
    result: UserProfile;
    isIdempotent: false;
  };
  /** Get readiness */
  get_readiness: {
    params: {};
    body: undefined;
    result: Health;
    isIdempotent: false;
  };
  /** Get session */
  get_session: {
    params: {
      companion: string;
    };
    body: undefined;
    result: OpenSession;
    isIdempotent: false;
  };
  /** Get usage */
  get_usage: {
    params: {};
    body: undefined;
    result: FileUsage;
    isIdempotent: false;
  };
  /** Get user */
  get_user: {
    params: {
      user: string;
    };
    body: undefined;
    result: AnyUser;
    isIdempotent: false;
  };
  /** Invite */
  invite: {
    params: {
      chat: string;
    };
    body: Invitation;
    result: ChatInfo;
    isIdempotent: true;
  };
  /** Join */
  join: {
    params: {
      chat: string;
    };
    body: Reference;
    result: ChatInfo;
    isIdempotent: true;
  };
  /** Leave */
  leave: {
    params: {
      chat: string;
    };
    body: Reference;
    result: ChatInfo;
    isIdempotent: true;
  };
  /** Like */
  like: {
    params: {
      user: string;
      post: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** List active messages */
  list_active_messages: {
    params: {
      chat: string;
      limit?: number;
      cursor?: string | null;
      order?: "newest" | "oldest";
    };
    body: undefined;
    result: MessagePage;
    isIdempotent: false;
  };
  /** List any active */
  list_any_active: {
    params: {
      chat: string;
      limit?: number;
      cursor?: string | null;
      order?: "newest" | "oldest";
    };
    body: undefined;
    result: MessagePage;
    isIdempotent: false;
  };
  /** List any messages */
  list_any_messages: {
    params: {
      chat: string;
      limit?: number;
      cursor?: string | null;
      from?: number;
      to?: number;
      order?: "newest" | "oldest";
    };
    body: undefined;
    result: MessagePage;
    isIdempotent: false;
  };
  /** List bans */
  list_bans: {
    params: {
      chat: string;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: BannedUserPage;
    isIdempotent: false;
  };
  /** List blocks */
  list_blocks: {
    params: {
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: BlockedUserPage;
    isIdempotent: false;
  };
  /** List chat preferences */
  list_chat_preferences: {
    params: {
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: ChatPreferencesPage;
    isIdempotent: false;
  };
  /** List chats */
  list_chats: {
    params: {
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: ChatSummaryPage;
    isIdempotent: false;
  };
  /** List companions */
  list_companions: {
    params: {
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: CompanionInfoPage;
    isIdempotent: false;
  };
  /** List devices */
  list_devices: {
    params: {
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: DevicePage;
    isIdempotent: false;
  };
  /** List devices of user */
  list_devices_of_user: {
    params: {
      user: string;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: DevicePage;
    isIdempotent: false;
  };
  /** List favorite messages */
  list_favorite_messages: {
    params: {
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: FavoriteMessagePage;
    isIdempotent: false;
  };
  /** List favorite posts */
  list_favorite_posts: {
    params: {
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: FavoritePostPage;
    isIdempotent: false;
  };
  /** List followers */
  list_followers: {
    params: {
      user: string;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: FollowerPage;
    isIdempotent: false;
  };
  /** List following */
  list_following: {
    params: {
      user: string;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: FollowerPage;
    isIdempotent: false;
  };
  /** List held */
  list_held: {
    params: {
      chat: string;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: MessagePage;
    isIdempotent: false;
  };
  /** List holds */
  list_holds: {
    params: {
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: HeldChatPage;
    isIdempotent: false;
  };
  /** List invitations */
  list_invitations: {
    params: {
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: InvitationInfoPage;
    isIdempotent: false;
  };
  /** List likes */
  list_likes: {
    params: {
      user: string;
      post: string;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: FollowerPage;
    isIdempotent: false;
  };
  /** List members */
  list_members: {
    params: {
      chat: string;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: MemberPage;
    isIdempotent: false;
  };
  /** List messages */
  list_messages: {
    params: {
      chat: string;
      before?: number | null;
      after?: number | null;
      ts?: number | null;
      limit?: number;
    };
    body: undefined;
    result: History;
    isIdempotent: false;
  };
  /** List messages around */
  list_messages_around: {
    params: {
      chat: string;
      seq: number;
      limit?: number;
    };
    body: undefined;
    result: MessageContextPage;
    isIdempotent: false;
  };
  /** List messages between */
  list_messages_between: {
    params: {
      chat: string;
      limit?: number;
      cursor?: string | null;
      from?: number;
      to?: number;
      order?: "newest" | "oldest";
    };
    body: undefined;
    result: MessagePage;
    isIdempotent: false;
  };
  /** List messages of user */
  list_messages_of_user: {
    params: {
      user: string;
      limit?: number;
      cursor?: string | null;
      from?: number;
      to?: number;
      order?: "newest" | "oldest";
      direction?: "sent" | "received" | null;
    };
    body: undefined;
    result: MessagePage;
    isIdempotent: false;
  };
  /** List messages with files */
  list_messages_with_files: {
    params: {
      chat: string;
      limit?: number;
      cursor?: string | null;
      from?: number;
      to?: number;
      order?: "newest" | "oldest";
    };
    body: undefined;
    result: MessagePage;
    isIdempotent: false;
  };
  /** List open reports */
  list_open_reports: {
    params: {
      limit?: number;
      cursor?: string | null;
      order?: "newest" | "oldest";
    };
    body: undefined;
    result: ReportInfoPage;
    isIdempotent: false;
  };
  /** List own messages */
  list_own_messages: {
    params: {
      limit?: number;
      cursor?: string | null;
      from?: number;
      to?: number;
      order?: "newest" | "oldest";
      direction?: "sent" | "received" | null;
    };
    body: undefined;
    result: MessagePage;
    isIdempotent: false;
  };
  /** List pins */
  list_pins: {
    params: {
      chat: string;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: PinnedMessagePage;
    isIdempotent: false;
  };
  /** List posts */
  list_posts: {
    params: {
      user: string;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: PostInfoPage;
    isIdempotent: false;
  };
  /** List received */
  list_received: {
    params: {
      limit?: number;
      cursor?: string | null;
      from?: number;
      to?: number;
      order?: "newest" | "oldest";
    };
    body: undefined;
    result: MessagePage;
    isIdempotent: false;
  };
  /** List received by user */
  list_received_by_user: {
    params: {
      user: string;
      limit?: number;
      cursor?: string | null;
      from?: number;
      to?: number;
      order?: "newest" | "oldest";
    };
    body: undefined;
    result: UserMessagesPage;
    isIdempotent: false;
  };
  /** List reports */
  list_reports: {
    params: {
      chat: string;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: ReportInfoPage;
    isIdempotent: false;
  };
  /** List sent */
  list_sent: {
    params: {
      limit?: number;
      cursor?: string | null;
      from?: number;
      to?: number;
      order?: "newest" | "oldest";
    };
    body: undefined;
    result: MessagePage;
    isIdempotent: false;
  };
  /** List sent by user */
  list_sent_by_user: {
    params: {
      user: string;
      limit?: number;
      cursor?: string | null;
      from?: number;
      to?: number;
      order?: "newest" | "oldest";
    };
    body: undefined;
    result: UserMessagesPage;
    isIdempotent: false;
  };
  /** List sessions */
  list_sessions: {
    params: {
      user: string;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: LiveSessionPage;
    isIdempotent: false;
  };
  /** List sessions with companions */
  list_sessions_with_companions: {
    params: {
      companion?: string | null;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: SessionInfoPage;
    isIdempotent: false;
  };
  /** List subscriptions */
  list_subscriptions: {
    params: {
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: PushDevicePage;
    isIdempotent: false;
  };
  /** List users */
  list_users: {
    params: {
      user: string[];
    };
    body: undefined;
    result: Persons;
    isIdempotent: false;
  };
  /** Log in */
  log_in: {
    params: {};
    body: PasswordLogin;
    result: Granted;
    isIdempotent: true;
  };
  /** Log out */
  log_out: {
    params: {};
    body: Refresh;
    result: null;
    isIdempotent: false;
  };
  /** Log out everywhere */
  log_out_everywhere: {
    params: {};
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Mark */
  mark: {
    params: {
      chat: string;
    };
    body: NewMarks;
    result: null;
    isIdempotent: false;
  };
  /** Mute member */
  mute_member: {
    params: {
      chat: string;
      user: string;
    };
    body: Mute;
    result: ChatInfo;
    isIdempotent: false;
  };
  /** Open direct */
  open_direct: {
    params: {
      user: string;
    };
    body: undefined;
    result: ChatInfo;
    isIdempotent: false;
  };
  /** Pin */
  pin: {
    params: {
      chat: string;
      seq: number;
      ref?: string | null;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Put avatar */
  put_avatar: {
    params: {};
    body: Picture;
    result: null;
    isIdempotent: false;
  };
  /** Put hold */
  put_hold: {
    params: {
      chat: string;
    };
    body: NewHold;
    result: HoldInfo;
    isIdempotent: false;
  };
  /** React */
  react: {
    params: {
      chat: string;
      seq: number;
    };
    body: NewReaction;
    result: Placed;
    isIdempotent: false;
  };
  /** Read timeline */
  read_timeline: {
    params: {
      user: string;
      limit?: number;
      cursor?: string | null;
    };
    body: undefined;
    result: PostInfoPage;
    isIdempotent: false;
  };
  /** Refresh */
  refresh: {
    params: {};
    body: Refresh;
    result: Granted;
    isIdempotent: false;
  };
  /** Register */
  register: {
    params: {};
    body: Registration;
    result: Granted;
    isIdempotent: true;
  };
  /** Release hold */
  release_hold: {
    params: {
      chat: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Remove */
  remove: {
    params: {
      chat: string;
      user: string;
      ref?: string | null;
    };
    body: undefined;
    result: ChatInfo;
    isIdempotent: false;
  };
  /** Remove saved message */
  remove_saved_message: {
    params: {
      chat: string;
      seq: number;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Remove saved post */
  remove_saved_post: {
    params: {
      user: string;
      post: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Renew session */
  renew_session: {
    params: {
      companion: string;
    };
    body: NewSession;
    result: OpenSession;
    isIdempotent: true;
  };
  /** Report */
  report: {
    params: {
      chat: string;
      seq: number;
    };
    body: NewReport;
    result: null;
    isIdempotent: false;
  };
  /** Resolve report */
  resolve_report: {
    params: {
      chat: string;
      seq: number;
      user: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Save message */
  save_message: {
    params: {
      chat: string;
      seq: number;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Save post */
  save_post: {
    params: {
      user: string;
      post: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Search */
  search: {
    params: {
      q: string;
      limit?: number;
      order?: unknown;
      cursor?: string | null;
    };
    body: undefined;
    result: SearchResultPage;
    isIdempotent: false;
  };
  /** Search users */
  search_users: {
    params: {
      q: string;
      limit?: number;
    };
    body: undefined;
    result: Persons;
    isIdempotent: false;
  };
  /** Send */
  send: {
    params: {
      chat: string;
    };
    body: NewMessage;
    result: Placed;
    isIdempotent: true;
  };
  /** Send as system */
  send_as_system: {
    params: {
      chat: string;
    };
    body: SystemMessage;
    result: SystemPlace;
    isIdempotent: true;
  };
  /** Set notifications */
  set_notifications: {
    params: {
      chat: string;
    };
    body: ChatNotifications;
    result: ChatNotifications;
    isIdempotent: false;
  };
  /** Set password */
  set_password: {
    params: {
      user: string;
    };
    body: NewPassword;
    result: null;
    isIdempotent: false;
  };
  /** Set pinned chats */
  set_pinned_chats: {
    params: {};
    body: NewPinnedChats;
    result: PinnedChats;
    isIdempotent: false;
  };
  /** Set retention */
  set_retention: {
    params: {
      chat: string;
    };
    body: NewRetention;
    result: ChatInfo;
    isIdempotent: false;
  };
  /** Set role */
  set_role: {
    params: {
      chat: string;
      user: string;
    };
    body: NewRole;
    result: ChatInfo;
    isIdempotent: false;
  };
  /** Start broadcast */
  start_broadcast: {
    params: {};
    body: NewBroadcast;
    result: Broadcast;
    isIdempotent: true;
  };
  /** Start export */
  start_export: {
    params: {};
    body: undefined;
    result: Export;
    isIdempotent: true;
  };
  /** Subscribe */
  subscribe: {
    params: {};
    body: NewPushSubscription;
    result: PushDevice;
    isIdempotent: true;
  };
  /** Switch companion memory */
  switch_companion_memory: {
    params: {
      companion: string;
    };
    body: MemorySwitch;
    result: Memory;
    isIdempotent: false;
  };
  /** Unban member */
  unban_member: {
    params: {
      chat: string;
      user: string;
      ref?: string | null;
    };
    body: undefined;
    result: ChatInfo;
    isIdempotent: false;
  };
  /** Unban user */
  unban_user: {
    params: {
      user: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Unblock */
  unblock: {
    params: {
      user: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Unfollow */
  unfollow: {
    params: {
      user: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Unlike */
  unlike: {
    params: {
      user: string;
      post: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Unpin */
  unpin: {
    params: {
      chat: string;
      seq: number;
      ref?: string | null;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Unsubscribe */
  unsubscribe: {
    params: {
      subscription: string;
    };
    body: undefined;
    result: null;
    isIdempotent: false;
  };
  /** Update chat */
  update_chat: {
    params: {
      chat: string;
    };
    body: ChatChanges;
    result: ChatInfo;
    isIdempotent: false;
  };
  /** Update companion */
  update_companion: {
    params: {
      companion: string;
    };
    body: CompanionChanges;
    result: Persona;
    isIdempotent: true;
  };
  /** Update session */
  update_session: {
    params: {
      chat: string;
    };
    body: NewVersion;
    result: SessionInfo;
    isIdempotent: false;
  };
}

/** Method, path and query parameters of each operation. */
export const OPERATIONS: {
  readonly [Id in keyof Operations]: readonly [string, string, readonly string[]];
} = {
  accept_invitation: ["POST", "/v1/invitations/{chat}/accept", []],
  ban_member: ["PUT", "/v1/chats/{chat}/bans/{user}", ["ref"]],
  ban_user: ["PUT", "/v1/admin/users/{user}/ban", []],
  begin_picture: ["POST", "/v1/me/attachments", []],
  begin_upload: ["POST", "/v1/chats/{chat}/attachments", []],
  block: ["PUT", "/v1/me/blocks/{user}", []],
  change_chat_preferences: ["PATCH", "/v1/chats/{chat}/preferences", []],
  change_me: ["PATCH", "/v1/me", []],
  change_password: ["PUT", "/v1/me/password", []],
  complete_upload: ["POST", "/v1/attachments/{file}/complete", ["wait_ms"]],
  create_chat: ["POST", "/v1/chats", []],
  create_companion: ["POST", "/v1/companions", []],
  create_post: ["POST", "/v1/me/posts", []],
  create_session: ["POST", "/v1/companions/{companion}/session", []],
  create_system_chat: ["POST", "/v1/admin/chats", []],
  create_user: ["POST", "/v1/admin/users", []],
  decline_invitation: ["DELETE", "/v1/invitations/{chat}", []],
  delete_any_message: ["DELETE", "/v1/admin/chats/{chat}/messages/{seq}", []],
  delete_avatar: ["DELETE", "/v1/me/avatar", []],
  delete_companion: ["DELETE", "/v1/companions/{companion}", []],
  delete_companion_memory: ["DELETE", "/v1/me/companions/{companion}/memory", ["chat"]],
  delete_companion_memory_entry: ["DELETE", "/v1/me/companions/{companion}/memory/{entry}", []],
  delete_message: ["DELETE", "/v1/chats/{chat}/messages/{seq}", ["for", "target_ref", "ref"]],
  delete_post: ["DELETE", "/v1/me/posts/{post}", []],
  delete_session: ["DELETE", "/v1/companions/{companion}/session", ["chat", "forget"]],
  download: ["GET", "/v1/attachments/{file}", ["seq", "thumb"]],
  edit: ["PATCH", "/v1/chats/{chat}/messages/{seq}", []],
  edit_post: ["PATCH", "/v1/me/posts/{post}", []],
  end_device: ["DELETE", "/v1/me/devices/{device}", []],
  end_device_of_user: ["DELETE", "/v1/admin/users/{user}/devices/{device}", []],
  end_sessions: ["DELETE", "/v1/admin/users/{user}/sessions", []],
  erase_me: ["DELETE", "/v1/me", []],
  erase_user: ["DELETE", "/v1/admin/users/{user}", []],
  follow: ["PUT", "/v1/me/following/{user}", []],
  get_audit: ["GET", "/v1/admin/audit", []],
  get_avatar: ["GET", "/v1/users/{user}/avatar", ["thumb"]],
  get_broadcast: ["GET", "/v1/admin/broadcasts/{broadcast}", []],
  get_chat: ["GET", "/v1/chats/{chat}", []],
  get_chat_picture: ["GET", "/v1/chats/{chat}/picture", ["thumb"]],
  get_chat_preferences: ["GET", "/v1/chats/{chat}/preferences", []],
  get_client_config: ["GET", "/v1/client-config", []],
  get_companion: ["GET", "/v1/companions/{companion}", []],
  get_companion_memory: ["GET", "/v1/me/companions/{companion}/memory", []],
  get_companion_version: ["GET", "/v1/companions/{companion}/versions/{version}", []],
  get_cost: ["GET", "/v1/admin/cost", []],
  get_erasure: ["GET", "/v1/erasures/{receipt}", []],
  get_export: ["GET", "/v1/me/export", []],
  get_group_preview: ["GET", "/v1/chats/{chat}/preview", []],
  get_health: ["GET", "/healthz", []],
  get_hold: ["GET", "/v1/admin/chats/{chat}/hold", []],
  get_link: ["GET", "/v1/attachments/{file}/link", ["seq", "thumb"]],
  get_link_picture: ["GET", "/v1/link-preview/picture", ["url"]],
  get_link_preview: ["GET", "/v1/link-preview", ["url"]],
  get_me: ["GET", "/v1/me", []],
  get_message: ["GET", "/v1/chats/{chat}/messages/{seq}", []],
  get_message_by_mid: ["GET", "/v1/chats/{chat}/messages/by-mid/{mid}", ["seq", "ts"]],
  get_notifications: ["GET", "/v1/chats/{chat}/notifications", []],
  get_overview: ["GET", "/v1/admin/overview", ["after"]],
  get_pinned_chats: ["GET", "/v1/me/pinned-chats", []],
  get_post: ["GET", "/v1/users/{user}/posts/{post}", []],
  get_post_image: ["GET", "/v1/users/{user}/posts/{post}/image", ["thumb"]],
  get_presence: ["GET", "/v1/presence", ["user"]],
  get_profile: ["GET", "/v1/users/{user}", []],
  get_readiness: ["GET", "/readyz", []],
  get_session: ["GET", "/v1/companions/{companion}/session", []],
  get_usage: ["GET", "/v1/me/attachments", []],
  get_user: ["GET", "/v1/admin/users/{user}", []],
  invite: ["POST", "/v1/chats/{chat}/members", []],
  join: ["POST", "/v1/chats/{chat}/join", []],
  leave: ["POST", "/v1/chats/{chat}/leave", []],
  like: ["PUT", "/v1/users/{user}/posts/{post}/like", []],
  list_active_messages: [
    "GET",
    "/v1/chats/{chat}/messages/active",
    ["limit", "cursor", "order"],
  ],
  list_any_active: [
    "GET",
    "/v1/admin/chats/{chat}/messages/active",
    ["limit", "cursor", "order"],
  ],
  list_any_messages: [
    "GET",
    "/v1/admin/chats/{chat}/messages",
    ["limit", "cursor", "from", "to", "order"],
  ],
  list_bans: ["GET", "/v1/chats/{chat}/bans", ["limit", "cursor"]],
  list_blocks: ["GET", "/v1/me/blocks", ["limit", "cursor"]],
  list_chat_preferences: ["GET", "/v1/me/chat-preferences", ["limit", "cursor"]],
  list_chats: ["GET", "/v1/chats", ["limit", "cursor"]],
  list_companions: ["GET", "/v1/companions", ["limit", "cursor"]],
  list_devices: ["GET", "/v1/me/devices", ["limit", "cursor"]],
  list_devices_of_user: ["GET", "/v1/admin/users/{user}/devices", ["limit", "cursor"]],
  list_favorite_messages: ["GET", "/v1/me/favorites/messages", ["limit", "cursor"]],
  list_favorite_posts: ["GET", "/v1/me/favorites/posts", ["limit", "cursor"]],
  list_followers: ["GET", "/v1/users/{user}/followers", ["limit", "cursor"]],
  list_following: ["GET", "/v1/users/{user}/following", ["limit", "cursor"]],
  list_held: ["GET", "/v1/admin/chats/{chat}/held", ["limit", "cursor"]],
  list_holds: ["GET", "/v1/admin/holds", ["limit", "cursor"]],
  list_invitations: ["GET", "/v1/invitations", ["limit", "cursor"]],
  list_likes: ["GET", "/v1/users/{user}/posts/{post}/likes", ["limit", "cursor"]],
  list_members: ["GET", "/v1/chats/{chat}/members", ["limit", "cursor"]],
  list_messages: ["GET", "/v1/chats/{chat}/messages", ["before", "after", "ts", "limit"]],
  list_messages_around: ["GET", "/v1/chats/{chat}/messages/around/{seq}", ["limit"]],
  list_messages_between: [
    "GET",
    "/v1/chats/{chat}/messages/between",
    ["limit", "cursor", "from", "to", "order"],
  ],
  list_messages_of_user: [
    "GET",
    "/v1/admin/users/{user}/messages",
    ["limit", "cursor", "from", "to", "order", "direction"],
  ],
  list_messages_with_files: [
    "GET",
    "/v1/chats/{chat}/messages/with-files",
    ["limit", "cursor", "from", "to", "order"],
  ],
  list_open_reports: ["GET", "/v1/admin/reports", ["limit", "cursor", "order"]],
  list_own_messages: [
    "GET",
    "/v1/me/messages",
    ["limit", "cursor", "from", "to", "order", "direction"],
  ],
  list_pins: ["GET", "/v1/chats/{chat}/pins", ["limit", "cursor"]],
  list_posts: ["GET", "/v1/users/{user}/posts", ["limit", "cursor"]],
  list_received: ["GET", "/v1/me/received", ["limit", "cursor", "from", "to", "order"]],
  list_received_by_user: [
    "GET",
    "/v1/admin/users/{user}/received",
    ["limit", "cursor", "from", "to", "order"],
  ],
  list_reports: ["GET", "/v1/chats/{chat}/reports", ["limit", "cursor"]],
  list_sent: ["GET", "/v1/me/sent", ["limit", "cursor", "from", "to", "order"]],
  list_sent_by_user: [
    "GET",
    "/v1/admin/users/{user}/sent",
    ["limit", "cursor", "from", "to", "order"],
  ],
  list_sessions: ["GET", "/v1/admin/users/{user}/sessions", ["limit", "cursor"]],
  list_sessions_with_companions: [
    "GET",
    "/v1/companion-sessions",
    ["companion", "limit", "cursor"],
  ],
  list_subscriptions: ["GET", "/v1/me/push-subscriptions", ["limit", "cursor"]],
  list_users: ["GET", "/v1/users", ["user"]],
  log_in: ["POST", "/v1/auth/login", []],
  log_out: ["POST", "/v1/auth/logout", []],
  log_out_everywhere: ["POST", "/v1/auth/logout-everywhere", []],
  mark: ["PUT", "/v1/chats/{chat}/marks", []],
  mute_member: ["PUT", "/v1/chats/{chat}/members/{user}/mute", []],
  open_direct: ["PUT", "/v1/direct-chats/{user}", []],
  pin: ["PUT", "/v1/chats/{chat}/pins/{seq}", ["ref"]],
  put_avatar: ["PUT", "/v1/me/avatar", []],
  put_hold: ["PUT", "/v1/admin/chats/{chat}/hold", []],
  react: ["PUT", "/v1/chats/{chat}/messages/{seq}/reaction", []],
  read_timeline: ["GET", "/v1/users/{user}/timeline", ["limit", "cursor"]],
  refresh: ["POST", "/v1/auth/refresh", []],
  register: ["POST", "/v1/auth/register", []],
  release_hold: ["DELETE", "/v1/admin/chats/{chat}/hold", []],
  remove: ["DELETE", "/v1/chats/{chat}/members/{user}", ["ref"]],
  remove_saved_message: ["DELETE", "/v1/me/favorites/messages/{chat}/{seq}", []],
  remove_saved_post: ["DELETE", "/v1/me/favorites/posts/{user}/{post}", []],
  renew_session: ["POST", "/v1/companions/{companion}/session/renewal", []],
  report: ["PUT", "/v1/chats/{chat}/messages/{seq}/report", []],
  resolve_report: ["POST", "/v1/chats/{chat}/reports/{seq}/{user}/resolve", []],
  save_message: ["PUT", "/v1/me/favorites/messages/{chat}/{seq}", []],
  save_post: ["PUT", "/v1/me/favorites/posts/{user}/{post}", []],
  search: ["GET", "/v1/search", ["q", "limit", "order", "cursor"]],
  search_users: ["GET", "/v1/user-search", ["q", "limit"]],
  send: ["POST", "/v1/chats/{chat}/messages", []],
  send_as_system: ["POST", "/v1/admin/chats/{chat}/messages", []],
  set_notifications: ["PUT", "/v1/chats/{chat}/notifications", []],
  set_password: ["PUT", "/v1/admin/users/{user}/password", []],
  set_pinned_chats: ["PUT", "/v1/me/pinned-chats", []],
  set_retention: ["PUT", "/v1/admin/chats/{chat}/retention", []],
  set_role: ["PATCH", "/v1/chats/{chat}/members/{user}", []],
  start_broadcast: ["POST", "/v1/admin/broadcasts", []],
  start_export: ["POST", "/v1/me/export", []],
  subscribe: ["POST", "/v1/me/push-subscriptions", []],
  switch_companion_memory: ["PATCH", "/v1/me/companions/{companion}/memory", []],
  unban_member: ["DELETE", "/v1/chats/{chat}/bans/{user}", ["ref"]],
  unban_user: ["DELETE", "/v1/admin/users/{user}/ban", []],
  unblock: ["DELETE", "/v1/me/blocks/{user}", []],
  unfollow: ["DELETE", "/v1/me/following/{user}", []],
  unlike: ["DELETE", "/v1/users/{user}/posts/{post}/like", []],
  unpin: ["DELETE", "/v1/chats/{chat}/pins/{seq}", ["ref"]],
  unsubscribe: ["DELETE", "/v1/me/push-subscriptions/{subscription}", []],
  update_chat: ["PATCH", "/v1/chats/{chat}", []],
  update_companion: ["PATCH", "/v1/companions/{companion}", []],
  update_session: ["PUT", "/v1/companion-sessions/{chat}/version", []],
};
