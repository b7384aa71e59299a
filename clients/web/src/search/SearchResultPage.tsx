// The conversation of a search result, next to the results.

export { default } from "../conversation/ConversationPage";
