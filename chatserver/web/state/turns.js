// Answers that companions are making, as they arrive: chat → turn.
//
// A turn is `{turn, seq, index, text, end, ahead, isBroken}`: the pieces 0 to `index` of the answer
// to the message at `seq`, as one text. Pieces that came before their turn wait in `ahead`; with one
// that is missing the turn is broken, until the server is asked what was said so far. All functions
// return a new map and leave the old one as it is.

import { isCompanion } from "../format.js";
import { isMessage } from "./changes.js";

const AHEAD_MAX = 500;

/** Take a piece that came as a signal. */
export function takePiece(turns, frame) {
  const { chat, turn, seq, index, text, end = null } = frame;
  const known = turns.get(chat);
  if (known?.turn === turn) {
    if (index <= known.index) return turns;
    const ahead = new Map(known.ahead).set(index, { text, end });
    return put(turns, chat, catchUp({ ...known, ahead }));
  }
  if (known !== undefined && known.seq > seq) return turns; // of an answer before this one
  const blank = { turn, seq, index: -1, text: "", end: null, isBroken: false };
  return put(turns, chat, catchUp({ ...blank, ahead: new Map([[index, { text, end }]]) }));
}

/** Take the answer to `join_turn`: what was said so far, or that nothing is being said. */
export function takeTurn(turns, frame) {
  const { chat, turn, seq, index, text, end = null } = frame;
  const known = turns.get(chat);
  if (turn === "") return known?.isBroken ? without(turns, chat) : turns;
  if (known?.turn === turn && known.index >= index) return turns;
  const ahead = known?.turn === turn ? known.ahead : new Map();
  return put(turns, chat, catchUp({ turn, seq, index, text, end, ahead, isBroken: false }));
}

/** Take an entry of a chat: the message that an answer becomes ends it. */
export function endTurn(turns, entry) {
  const known = turns.get(entry.chat);
  const isAnswer = isMessage(entry) && isCompanion(entry.sender) && entry.seq > (known?.seq ?? 0);
  return known !== undefined && isAnswer ? without(turns, entry.chat) : turns;
}

/** The answer that is being made in a chat and is not a message yet, or null. */
export function turnOf(turns, chat) {
  const found = turns.get(chat.id);
  if (found === undefined || found.isBroken) return null;
  const isSaid = chat.messages.some((each) => each.seq > found.seq && isCompanion(each.sender));
  return isSaid ? null : found;
}

/** Add what waits and whose turn it is. */
function catchUp(turn) {
  const ahead = new Map(turn.ahead);
  let { index, text, end } = turn;
  while (ahead.has(index + 1)) {
    index += 1;
    const piece = ahead.get(index);
    text += piece.text;
    end = piece.end ?? end;
    ahead.delete(index);
  }
  for (const each of ahead.keys()) if (each <= index) ahead.delete(each);
  if (ahead.size > AHEAD_MAX) ahead.clear();
  return { ...turn, index, text, end, ahead, isBroken: ahead.size > 0 || index < 0 };
}

function put(turns, chat, turn) {
  return new Map(turns).set(chat, turn);
}

function without(turns, chat) {
  const changed = new Map(turns);
  changed.delete(chat);
  return changed;
}
