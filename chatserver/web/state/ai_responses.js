// AI responses in progress: chat → response.
//
// A response is `{turn, seq, index, text, end, tool, ahead, isBroken}`: the deltas 0 to `index` of the
// response to the message at `seq`, as one text; `turn` is its id. `tool` is the
// tool that the model uses now, or null. Early deltas are held back in
// `ahead`; if one is missing, the response is broken until the server sends its text so far. All
// functions return a new map and do not modify the old one.

import { isCompanion } from "../format.js";
import { isMessage } from "./changes.js";

const AHEAD_MAX = 500;

/** Apply a delta. */
export function applyDelta(responses, frame) {
  const { chat, turn, seq, index, text, end = null, tool = null } = frame;
  const known = responses.get(chat);
  if (known?.turn === turn) {
    if (index <= known.index) return responses;
    const ahead = new Map(known.ahead).set(index, { text, end, tool });
    return put(responses, chat, catchUp({ ...known, ahead }));
  }
  if (known !== undefined && known.seq > seq) return responses; // of an earlier response
  const blank = { turn, seq, index: -1, text: "", end: null, tool: null, isBroken: false };
  const ahead = new Map([[index, { text, end, tool }]]);
  return put(responses, chat, catchUp({ ...blank, ahead }));
}

/** Apply the reply to `join_turn`: the text so far; `turn` is empty if there is no response. */
export function applyResponse(responses, frame) {
  const { chat, turn, seq, index, text, end = null } = frame;
  const known = responses.get(chat);
  if (turn === "") return known?.isBroken ? without(responses, chat) : responses;
  if (known?.turn === turn && known.index >= index) return responses;
  const ahead = known?.turn === turn ? known.ahead : new Map();
  return put(responses, chat, catchUp({ turn, seq, index, text, end, tool: null, ahead, isBroken: false }));
}

/** Remove the response when its final message arrives. */
export function removeResponse(responses, entry) {
  const known = responses.get(entry.chat);
  const isAnswer = isMessage(entry) && isCompanion(entry.sender) && entry.seq > (known?.seq ?? 0);
  return known !== undefined && isAnswer ? without(responses, entry.chat) : responses;
}

/** The response in progress of a chat, or null. */
export function findResponse(responses, chat) {
  const found = responses.get(chat.id);
  if (found === undefined || found.isBroken) return null;
  const isSaid = chat.messages.some((each) => each.seq > found.seq && isCompanion(each.sender));
  return isSaid ? null : found;
}

/** Append the deltas that are next in order. */
function catchUp(turn) {
  const ahead = new Map(turn.ahead);
  let { index, text, end, tool } = turn;
  while (ahead.has(index + 1)) {
    index += 1;
    const piece = ahead.get(index);
    text += piece.text;
    end = piece.end ?? end;
    tool = piece.text === "" && end === null ? (piece.tool ?? tool) : null;
    ahead.delete(index);
  }
  for (const each of ahead.keys()) if (each <= index) ahead.delete(each);
  if (ahead.size > AHEAD_MAX) ahead.clear();
  return { ...turn, index, text, end, tool, ahead, isBroken: ahead.size > 0 || index < 0 };
}

function put(responses, chat, turn) {
  return new Map(responses).set(chat, turn);
}

function without(responses, chat) {
  const changed = new Map(responses);
  changed.delete(chat);
  return changed;
}
