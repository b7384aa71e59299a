// The reactions offered without the picker.

export const QUICK_REACTIONS = ["👍", "❤️", "😂", "😮", "😢", "🙏"];
