"""Texts and names in twenty scripts, blank texts, and graphemes of several code points."""

from __future__ import annotations

from typing import Final

TEXTS: Final = {
    "Arabic": "مرحبا، كيف حالك اليوم؟",
    "Armenian": "Բարև, ինչպե՞ս ես",
    "Bengali": "আপনি কেমন আছেন?",
    "Burmese": "မင်္ဂလာပါ",
    "Chinese": "你好，今天一起吃午饭吗？",
    "Cyrillic": "Привет, как дела?",
    "Devanagari": "नमस्ते, आप कैसे हैं? क्‍ष",
    "Ethiopic": "ሰላም፣ እንዴት ነህ?",
    "Georgian": "გამარჯობა, როგორ ხარ?",
    "Greek": "Γεια σου, τι κάνεις;",
    "Gujarati": "કેમ છો?",
    "Hangul": "안녕하세요, 점심 먹을까요?",
    "Hebrew": "שָׁלוֹם, מה שלומך?",
    "Japanese": "こんにちは、お昼を食べませんか。ガ",
    "Kannada": "ನಮಸ್ಕಾರ, ಹೇಗಿದ್ದೀರಾ?",
    "Khmer": "សួស្តី\u200bអ្នក",
    "Latin": "Tiếng Việt, Đorđe, Æsir, naïve, ẞ",
    "Malayalam": "സുഖമാണോ? നന്ദി, അവന്‍",
    "Persian": "می‌خواهم به خانه بروم",
    "Sinhala": "ආයුබෝවන් ශ්‍රී ලංකා",
    "Tamil": "வணக்கம், எப்படி இருக்கிறீர்கள்?",
    "Thai": "สวัสดี กินข้าวกันไหม",
    "Tibetan": "བཀྲ་ཤིས་བདེ་ལེགས།",
    "emoji": "👩🏻‍❤️‍💋‍👨🏿 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🇩🇪 1️⃣",
}
NAMES: Final = {
    "Arabic": "محمد علي",
    "Chinese": "王小明",
    "Cyrillic": "Анна Иванова",
    "Devanagari": "क्षितिज",
    "Hangul": "김민수",
    "Hebrew": "יוסי כהן",
    "Japanese": "田中 さくら",
    "Latin": "Đặng Thị Hương",
    "Persian": "علی‌رضا",
    "Sinhala": "ශ්‍රී",
    "Tamil": "கமல்",
    "Thai": "สมชาย ใจดี",
    "emoji": "Team ❤️",
    "flag": "Fans 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
}
# Each of these shows nothing.
BLANK_TEXTS: Final = (
    "",
    " ",
    "\n\t\r\n",
    "\u00a0\u2003\u3000",
    "\u3164",  # Hangul filler
    "\u115f\u1160",  # Hangul Choseong and Jungseong fillers
    "\uffa0",  # halfwidth Hangul filler
    "\u2800",  # blank Braille pattern
    "\u200b\u200c\u200d\u2060\ufeff",  # zero width
    "\u00ad",  # soft hyphen
    "\u034f",  # combining grapheme joiner
    "\u17b4\u17b5",  # Khmer inherent vowels
    "\u180b\u180e\u180f",  # Mongolian selectors
    "\ufe0e\ufe0f\U000e0100",  # variation selectors
    "\U000e0041\U000e007f",  # tags
    "\u202e\u2066\u2069\u200e\u061c",  # direction marks
    "\u2061\u2064\u206a",  # invisible operators
    "\ufff9\ufffb",  # interlinear annotations
    "\U0001d159\U0001d173",  # musical symbols
    "\U0001bca0",  # shorthand format controls
    "  \u3164 \n\u200b ",
)
GRAPHEMES: Final = (
    "é",
    "e\u0301",
    "👩🏻‍❤️‍💋‍👨🏿",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "🇩🇪",
    "👍🏽",
    "1️⃣",
    "क्षि",
    "நி",
    "\u1112\u1161\u11ab",
    "ศักดิ์"[:2],
    "ｶﾞ",
)
