// A player of audio files and voice messages. The content is loaded when it is first played.

import { Pause, Play } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import type { Attachment } from "tierchat";
import { IconButton } from "../design";
import { useText } from "../i18n";
import styles from "./content.module.css";
import { formatDuration } from "./durations";
import { FileName } from "./FileName";
import { getVoiceLengthS, isVoice } from "./file_kinds";
import { useMedia } from "./use_media";

let playing: HTMLAudioElement | null = null; // only one plays at a time

/** Plays one file of message `seq`. */
export function AudioPlayer({ file, seq }: { file: Attachment; seq: number }) {
  const words = useText().content;
  const audio = useRef<HTMLAudioElement>(null);
  const [isRequested, setRequested] = useState(false);
  const [isPlaying, setPlaying] = useState(false);
  const [positionS, setPosition] = useState(0);
  const [lengthS, setLength] = useState(() => getVoiceLengthS(file));
  const media = useMedia(file, seq, { isEnabled: isRequested });
  const name = isVoice(file) ? words.voiceMessage : file.name;

  useEffect(() => {
    if (media.url !== null) void audio.current?.play().catch(() => setPlaying(false));
  }, [media.url]);
  useEffect(
    () => () => {
      if (playing === audio.current) playing = null;
    },
    [],
  );
  const toggle = (): void => {
    const element = audio.current;
    setRequested(true);
    if (element === null || media.url === null) return;
    if (element.paused) void element.play().catch(() => setPlaying(false));
    else element.pause();
  };
  const shownS = isPlaying || positionS > 0 ? positionS : lengthS;
  return (
    <div className={styles["audio"]} role="group" aria-label={words.audio(name)}>
      <IconButton
        icon={isPlaying ? Pause : Play}
        label={isPlaying ? words.pause : words.play}
        aria-busy={isRequested && media.url === null && !media.hasFailed}
        onClick={toggle}
      />
      <span className={styles["audioAbout"]}>
        <FileName name={media.hasFailed ? words.fileFailed : name} />
        <input
          type="range"
          aria-label={words.position}
          min={0}
          max={lengthS || 1}
          step={0.1}
          value={Math.min(positionS, lengthS || 1)}
          aria-valuetext={formatDuration(positionS)}
          disabled={lengthS === 0 || media.url === null}
          onChange={(event) => {
            if (audio.current !== null) audio.current.currentTime = Number(event.target.value);
          }}
        />
      </span>
      <time>{shownS > 0 && formatDuration(shownS)}</time>
      {media.url !== null && (
        <audio
          ref={audio}
          src={media.url}
          onPlay={() => {
            if (playing !== audio.current) playing?.pause();
            playing = audio.current;
            setPlaying(true);
          }}
          onPause={() => setPlaying(false)}
          onEnded={() => setPosition(0)}
          onTimeUpdate={(event) => setPosition(event.currentTarget.currentTime)}
          onDurationChange={({ currentTarget: { duration } }) => {
            if (Number.isFinite(duration)) setLength(duration); // unknown for recordings
          }}
        />
      )}
    </div>
  );
}
