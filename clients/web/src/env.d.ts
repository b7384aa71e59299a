/// <reference types="vite/client" />

// Missing in the DOM types of TypeScript.
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
