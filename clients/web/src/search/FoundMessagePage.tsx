// The conversation of a found message, next to the search results.

export { default } from "../conversation/ConversationPage";
