// The dialog that creates a companion, or the next version of one.

import { Plus, Trash2 } from "lucide-react";
import { type FormEvent, type ReactNode, useEffect, useId, useState } from "react";
import { type Http, type HttpClient, newRef } from "tierchat";
import { useAction } from "../data/use_action";
import { useLoad } from "../data/use_load";
import {
  Button,
  Dialog,
  IconButton,
  Select,
  Switch,
  showToast,
  TextArea,
  TextField,
} from "../design";
import { useText } from "../i18n";
import { ActionError, LoadedView } from "../page/Loadable";
import styles from "./CompanionForm.module.css";
import {
  buildDraft,
  buildRequest,
  type CompanionDraft,
  createTool,
  type DraftProblem,
  findProblem,
  NEW_COMPANION,
  TOOLS_MAX,
  type ToolDraft,
} from "./companion_draft";

interface CompanionFormProps {
  http: HttpClient;
  /** The companion to edit; null creates one. */
  companion: Http.CompanionInfo | null;
  onSaved: () => void;
  onClose: () => void;
}

/** The dialog. To edit a companion, it loads the fields initial. */
export function CompanionForm(props: CompanionFormProps) {
  const { http, companion, onClose } = props;
  const text = useText().companions;
  const formId = useId();
  const { isBusy, error, run } = useAction();
  const common = useText().common;
  const key = companion === null ? "new" : `persona ${companion.id} ${companion.version}`;
  const loaded = useLoad(key, async () => {
    if (companion === null) return NEW_COMPANION;
    const { id, version } = companion;
    return buildDraft(await http.call("get_companion_version", { companion: id, version }));
  });
  return (
    <Dialog
      title={companion === null ? text.createTitle : text.editTitle(companion.name)}
      size="m"
      asksToDiscard
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{common.cancel}</Button>
          <Button variant="primary" type="submit" form={formId} isBusy={isBusy}>
            {common.save}
          </Button>
        </>
      }
    >
      <LoadedView loaded={loaded}>
        {(initial) => <Fields {...props} {...{ formId, initial, error, run }} />}
      </LoadedView>
    </Dialog>
  );
}

interface FieldsProps extends CompanionFormProps {
  formId: string;
  initial: CompanionDraft;
  error: string | null;
  run: (action: () => Promise<unknown>) => Promise<boolean>;
}

function Fields({ http, companion, onSaved, onClose, formId, initial, error, run }: FieldsProps) {
  const text = useText().companions;
  const [draft, setDraft] = useState(initial);
  const [problem, setProblem] = useState<DraftProblem | null>(null);
  const [key] = useState(() => newRef());
  useEffect(() => setDraft(initial), [initial]);
  const set = (changes: Partial<CompanionDraft>): void => {
    setProblem(null);
    setDraft((previous) => ({ ...previous, ...changes }));
  };

  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    const invalid = findProblem(draft);
    setProblem(invalid);
    if (invalid !== null) return;
    const isDone = await run(async () => {
      const fields = buildRequest(draft);
      if (companion === null) {
        const id = draft.id.trim() === "" ? null : draft.id.trim();
        const created = await http.call("create_companion", { body: { ...fields, id } }, key);
        showToast(text.created(created.name));
        return;
      }
      const { id, version } = companion;
      const body = { ...fields, version };
      const updated = await http.call("update_companion", { companion: id, body });
      showToast(text.savedVersion(updated.version));
    });
    if (!isDone) return;
    onSaved();
    onClose();
  };
  const labels = {
    contextTokens: text.contextTokens,
    answerTokens: text.answerTokens,
    temperature: text.temperature,
    topP: text.topP,
    images: text.images,
  };
  const field = (name: keyof typeof labels, hint?: string): ReactNode => (
    <TextField
      label={labels[name]}
      inputMode="decimal"
      hint={hint}
      error={problem?.field === name ? text.numberInvalid(labels[name]) : undefined}
      value={draft[name]}
      onChange={(event) => set({ [name]: event.target.value })}
    />
  );
  const setTool = (changed: ToolDraft): void =>
    set({ tools: draft.tools.map((tool) => (tool.key === changed.key ? changed : tool)) });
  return (
    <form id={formId} className="stack" onSubmit={(event) => void submit(event)}>
      <TextField
        label={text.name}
        required
        maxLength={80}
        value={draft.name}
        onChange={(event) => set({ name: event.target.value })}
      />
      {companion === null && (
        <TextField
          label={text.id}
          hint={text.idHint}
          maxLength={64}
          value={draft.id}
          onChange={(event) => set({ id: event.target.value })}
        />
      )}
      <div className={styles["pair"]}>
        <Select
          label={text.provider}
          value={draft.provider}
          options={[
            { value: "bedrock", label: "Bedrock" },
            { value: "openai", label: "OpenAI" },
            { value: "scripted", label: "Scripted" },
          ]}
          onChange={(provider) => set({ provider })}
        />
        <TextField
          label={text.model}
          required
          value={draft.model}
          onChange={(event) => set({ model: event.target.value })}
        />
      </div>
      <TextArea
        label={text.prompt}
        hint={text.promptHint}
        rows={6}
        value={draft.prompt}
        onChange={(event) => set({ prompt: event.target.value })}
      />
      <div className={styles["pair"]}>
        {field("contextTokens")}
        {field("answerTokens")}
      </div>
      <fieldset className={styles["group"]}>
        <legend>{text.sampling}</legend>
        <div className={styles["pair"]}>
          {field("temperature")}
          {field("topP")}
        </div>
        {field("images", text.imagesHint)}
        <Switch
          label={text.hasMemory}
          hint={text.hasMemoryHint}
          isOn={draft.memory}
          onChange={(memory) => set({ memory })}
        />
      </fieldset>
      <fieldset className={styles["group"]}>
        <legend>{text.guardrails}</legend>
        {draft.provider === "openai" ? (
          <TextField
            label={text.moderationModel}
            hint={text.moderationHint}
            value={draft.moderationModel}
            onChange={(event) => set({ moderationModel: event.target.value })}
          />
        ) : (
          <div className={styles["pair"]}>
            <TextField
              label={text.guardrail}
              value={draft.guardrail}
              onChange={(event) => set({ guardrail: event.target.value })}
            />
            <TextField
              label={text.guardrailVersion}
              hint={text.guardrailHint}
              value={draft.guardrailVersion}
              onChange={(event) => set({ guardrailVersion: event.target.value })}
            />
          </div>
        )}
      </fieldset>
      <fieldset className={styles["group"]}>
        <legend>{text.tools}</legend>
        <p className={styles["hint"]}>{text.toolsHint}</p>
        {draft.tools.map((tool, index) => (
          <ToolFields
            key={tool.key}
            tool={tool}
            number={index + 1}
            isInvalid={problem?.field === "schema" && problem.tool === index}
            onChange={setTool}
            onRemove={() => set({ tools: draft.tools.filter((other) => other !== tool) })}
          />
        ))}
        {draft.tools.length < TOOLS_MAX && (
          <Button
            icon={Plus}
            onClick={() => {
              const last = Math.max(-1, ...draft.tools.map((tool) => tool.key));
              set({ tools: [...draft.tools, createTool(last + 1)] });
            }}
          >
            {text.addTool}
          </Button>
        )}
      </fieldset>
      <ActionError error={error} />
    </form>
  );
}

interface ToolFieldsProps {
  tool: ToolDraft;
  number: number;
  isInvalid: boolean;
  onChange: (tool: ToolDraft) => void;
  onRemove: () => void;
}

function ToolFields({ tool, number, isInvalid, onChange, onRemove }: ToolFieldsProps) {
  const text = useText().companions;
  const title = tool.name === "" ? text.toolNumber(number) : tool.name;
  return (
    <section className={styles["tool"]} aria-label={title}>
      <header>
        <h3>{title}</h3>
        <IconButton icon={Trash2} label={text.removeTool(title)} size="s" onClick={onRemove} />
      </header>
      <TextField
        label={text.toolName}
        required
        maxLength={64}
        value={tool.name}
        onChange={(event) => onChange({ ...tool, name: event.target.value })}
      />
      <TextField
        label={text.toolDescription}
        required
        maxLength={1_000}
        value={tool.description}
        onChange={(event) => onChange({ ...tool, description: event.target.value })}
      />
      <TextField
        label={text.toolUrl}
        type="url"
        required
        value={tool.url}
        onChange={(event) => onChange({ ...tool, url: event.target.value })}
      />
      <TextArea
        label={text.toolSchema}
        rows={5}
        spellCheck={false}
        className={styles["code"]}
        error={isInvalid ? text.schemaInvalid : undefined}
        value={tool.schema}
        onChange={(event) => onChange({ ...tool, schema: event.target.value })}
      />
    </section>
  );
}
