// Catches errors of components, so that one broken page does not break the others.

import { TriangleAlert } from "lucide-react";
import { Component, type ReactNode } from "react";
import { Button, EmptyState } from "../design";
import { useText } from "../i18n";

interface ErrorBoundaryProps {
  children: ReactNode;
  /** If this changes, for example after navigation, the children are shown again. */
  resetKey?: string;
}

interface ErrorBoundaryState {
  error: Error | null;
  key: string | undefined;
}

/** Shows a message in place of children that threw an error. */
export class ErrorBoundary extends Component<ErrorBoundaryProps, ErrorBoundaryState> {
  override state: ErrorBoundaryState = { error: null, key: this.props.resetKey };

  static getDerivedStateFromError(error: Error): Partial<ErrorBoundaryState> {
    return { error };
  }

  static getDerivedStateFromProps(
    props: ErrorBoundaryProps,
    state: ErrorBoundaryState,
  ): ErrorBoundaryState | null {
    return props.resetKey === state.key ? null : { error: null, key: props.resetKey };
  }

  override render(): ReactNode {
    return this.state.error === null ? this.props.children : <Crash />;
  }
}

function Crash() {
  const text = useText();
  const reload = <Button onClick={() => location.reload()}>{text.common.reload}</Button>;
  return (
    <EmptyState icon={TriangleAlert} title={text.common.crashed} action={reload}>
      {text.common.crashedHint}
    </EmptyState>
  );
}
