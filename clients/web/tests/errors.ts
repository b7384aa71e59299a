// The modules of one test, with one class of errors.

export { ChatError } from "tierchat";
export { de } from "../src/i18n/de";
export { en } from "../src/i18n/en";
export { DETAILS, getErrorText } from "../src/i18n/errors";
export { zh } from "../src/i18n/zh";
