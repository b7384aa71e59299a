// A found message in its conversation, beside the results.

export { default } from "../conversation/ConversationPage";
