/// <reference types="vite/client" />

// Not in the DOM types of TypeScript yet.
declare global {
  var trustedTypes:
    | {
        createPolicy(
          name: string,
          rules: { createScriptURL: (url: string) => string },
        ): { createScriptURL(url: string): unknown };
      }
    | undefined;
}

export {};
