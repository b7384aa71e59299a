// The form of a companion, with all fields as text. Pure functions.

import type { Http } from "tierchat";

/** A tool in the form. `key` identifies the tool during the edit. */
export interface ToolDraft {
  key: number;
  name: string;
  description: string;
  url: string;
  schema: string;
}

/** The fields of the form. */
export interface CompanionDraft {
  id: string;
  name: string;
  provider: Http.Persona["provider"];
  model: string;
  prompt: string;
  contextTokens: string;
  answerTokens: string;
  temperature: string;
  topP: string;
  images: string;
  memory: boolean;
  guardrail: string;
  guardrailVersion: string;
  moderationModel: string;
  tools: readonly ToolDraft[];
}

/** Maximum number of tools per companion on the server. */
export const TOOLS_MAX = 16;

const EMPTY_SCHEMA = '{\n  "type": "object",\n  "properties": {}\n}';

/** The form of a new companion, with the server's defaults. */
export const NEW_COMPANION: CompanionDraft = {
  id: "",
  name: "",
  provider: "bedrock",
  model: "",
  prompt: "",
  contextTokens: "8192",
  answerTokens: "1024",
  temperature: "",
  topP: "",
  images: "0",
  memory: true,
  guardrail: "",
  guardrailVersion: "",
  moderationModel: "",
  tools: [],
};

/** Return a new tool. */
export function createTool(key: number): ToolDraft {
  return { key, name: "", description: "", url: "", schema: EMPTY_SCHEMA };
}

/** Return the form of an existing companion. */
export function buildDraft(persona: Http.Persona): CompanionDraft {
  const { options } = persona;
  const text = (value: number | string | null | undefined): string => String(value ?? "");
  return {
    id: persona.id,
    name: persona.name,
    provider: persona.provider,
    model: persona.model,
    prompt: persona.prompt,
    contextTokens: text(persona.context_tokens_max),
    answerTokens: text(persona.answer_tokens_max),
    temperature: text(options.temperature),
    topP: text(options.top_p),
    images: text(options.images_max ?? 0),
    memory: options.memory ?? true,
    guardrail: text(options.guardrail),
    guardrailVersion: text(options.guardrail_version),
    moderationModel: text(options.moderation_model),
    tools: (options.tools ?? []).map((item, key) => {
      const tool = item as Http.Tool;
      const schema = JSON.stringify(tool.input_schema, null, 2);
      return { key, name: tool.name, description: tool.description, url: tool.url, schema };
    }),
  };
}

/** The numeric fields of the form. */
export type NumberField = "contextTokens" | "answerTokens" | "temperature" | "topP" | "images";

/** An invalid field. */
export type DraftProblem = { field: NumberField } | { field: "schema"; tool: number };

/** Return the first invalid field of a form, or null. The server checks the other fields. */
export function findProblem(draft: CompanionDraft): DraftProblem | null {
  const required: NumberField[] = ["contextTokens", "answerTokens", "images"];
  for (const field of required) if (!isNumber(draft[field])) return { field };
  const optional: NumberField[] = ["temperature", "topP"];
  for (const field of optional) {
    if (draft[field].trim() !== "" && !isNumber(draft[field])) return { field };
  }
  const tool = draft.tools.findIndex(({ schema }) => parseSchema(schema) === null);
  return tool < 0 ? null : { field: "schema", tool };
}

/** Return the request for a valid form. */
export function buildRequest(draft: CompanionDraft): Http.NewCompanion {
  const optional = (text: string): string | null => (text.trim() === "" ? null : text.trim());
  const number = (text: string): number | null => (text.trim() === "" ? null : Number(text));
  return {
    name: draft.name.trim(),
    provider: draft.provider,
    model: draft.model.trim(),
    prompt: draft.prompt,
    context_tokens_max: Number(draft.contextTokens),
    answer_tokens_max: Number(draft.answerTokens),
    options: {
      memory: draft.memory,
      temperature: number(draft.temperature),
      top_p: number(draft.topP),
      images_max: Number(draft.images),
      guardrail: optional(draft.guardrail),
      guardrail_version: optional(draft.guardrailVersion),
      moderation_model: optional(draft.moderationModel),
      tools: draft.tools.map(({ name, description, url, schema }) => ({
        name: name.trim(),
        description: description.trim(),
        url: url.trim(),
        input_schema: parseSchema(schema) ?? {},
      })),
    },
  };
}

function isNumber(text: string): boolean {
  return text.trim() !== "" && Number.isFinite(Number(text));
}

function parseSchema(text: string): Record<string, unknown> | null {
  try {
    const parsed: unknown = JSON.parse(text);
    const isObject = typeof parsed === "object" && parsed !== null && !Array.isArray(parsed);
    return isObject ? (parsed as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
