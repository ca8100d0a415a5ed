//! Texts for people: escaped, cut, and as log lines of which there aren't too many.
//!
//! Escapes texts from a cluster for people, as text and within JSON. A user who can name an object must not be able
//! to control a terminal: nothing from a cluster may be printed without this.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt::Write as _,
    mem,
    time::{Duration, Instant},
};

/// Returns the text, and escapes every character that moves the cursor, sets colours, hides text or changes its
/// direction.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_steering) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            c if is_steering(c) => {
                // Writing to a String can't fail.
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Escapes each line of a text like [`visible`], and keeps the line breaks.
#[must_use]
pub fn visible_lines(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

/// Returns equivalent JSON without the characters that JSON doesn't escape and a terminal interprets.
#[must_use]
pub fn visible_json(json: String) -> String {
    if !json.contains(is_left_by_json) {
        return json;
    }
    let mut shown = String::with_capacity(json.len() + 8);
    for c in json.chars() {
        if is_left_by_json(c) {
            // Their code points fit into four hex digits, and writing to a String can't fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns true for characters that a terminal interprets and that JSON and YAML may contain unescaped. Control
/// characters below the space are excluded: they are escaped within strings, and are layout outside of strings.
#[must_use]
pub fn is_left_by_json(c: char) -> bool {
    c >= ' ' && is_steering(c)
}

/// Returns at most `limit` characters, with a mark if the rest was cut off.
#[must_use]
pub fn shortened(text: &str, limit: usize) -> Cow<'_, str> {
    match text.char_indices().nth(limit) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Returns true for control characters, direction marks and overrides, line separators, and zero-width characters.
fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

// Limits the log lines whose number others decide: tenants, servers and clients. The first lines of a kind are logged
// immediately, and those that follow within a minute are only counted.

/// The time in which lines of one kind are counted, from the first one.
pub const PAUSE: Duration = Duration::from_secs(60);

/// The lines of the last minute, by their kind.
#[derive(Debug)]
pub struct LogLimit<K> {
    at_once: usize,
    kinds: BTreeMap<K, Logged>,
}

/// The lines of one kind.
#[derive(Debug)]
struct Logged {
    since: Instant,
    lines: usize,
    /// The number of entries that weren't logged.
    more: u64,
}

impl<K: Clone + Ord> LogLimit<K> {
    /// Returns a limit that lets `at_once` lines of a kind through in a minute.
    #[must_use]
    pub fn new(at_once: usize) -> Self {
        Self { at_once, kinds: BTreeMap::new() }
    }

    /// Iterates over the kinds that are counted.
    pub fn kinds(&self) -> impl Iterator<Item = &K> {
        self.kinds.keys()
    }

    /// Returns true if this kind is counted already, or fewer kinds than `most` are.
    #[must_use]
    pub fn may_count(&self, kind: &K, most: usize) -> bool {
        self.kinds.len() < most || self.kinds.contains_key(kind)
    }

    /// Returns the number of earlier entries that weren't logged, if an entry of this number of lines has to be logged.
    /// It may take the lines beyond the limit, so that a long one is logged too. Otherwise counts it.
    pub fn allows(&mut self, kind: K, lines: usize, now: Instant) -> Option<u64> {
        let logged = self.kinds.entry(kind).or_insert(Logged { since: now, lines: 0, more: 0 });
        if now.saturating_duration_since(logged.since) >= PAUSE {
            (logged.since, logged.lines) = (now, 0);
        }
        if logged.lines >= self.at_once {
            logged.more += 1;
            return None;
        }
        logged.lines += lines;
        Some(mem::take(&mut logged.more))
    }

    /// Forgets the kinds whose minute is over. Returns those with entries that weren't logged, and their number. It
    /// must be called periodically.
    pub fn over(&mut self, now: Instant) -> Vec<(K, u64)> {
        let mut over = Vec::new();
        self.kinds.retain(|kind, logged| {
            let is_over = now.saturating_duration_since(logged.since) >= PAUSE;
            if is_over && logged.more > 0 {
                over.push((kind.clone(), logged.more));
            }
            !is_over
        });
        over
    }

    /// Returns the time at which the first sum is due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.kinds.values().filter(|logged| logged.more > 0).map(|logged| logged.since + PAUSE).min()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::letters("Größe 漢", "Größe 漢")]
    #[case::colour("\u{1b}[31mred", "\\u{1b}[31mred")]
    #[case::title("a\u{1b}]0;title\u{7}", "a\\u{1b}]0;title\\u{7}")]
    #[case::lines("a\nb\r\tc", "a\\nb\\r\\tc")]
    #[case::c1_and_delete("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}")]
    #[case::turned_around("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}")]
    #[case::hidden("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}")]
    #[case::separators("a\u{2028}b\u{2029}", "a\\u{2028}b\\u{2029}")]
    fn nothing_steers_a_terminal(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(visible(text), expected);
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(visible_lines("a\u{1b}[2J\n  b\r\n"), "a\\u{1b}[2J\n  b\\r\n");
    }

    #[test]
    fn json_stays_the_same_value_and_keeps_its_lines() {
        let text = "a\u{9b}\u{7f}\u{202e}\u{1b}\u{feff}\"\nb";
        let json = visible_json(serde_json::to_string_pretty(&[text]).unwrap());
        assert!(!json.contains(|c| c != '\n' && is_steering(c)), "{json:?}");
        assert_eq!(json.lines().count(), 3, "{json:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [text]);
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(shortened("漢字だ", 2), "漢字…");
        assert_eq!(shortened("漢字だ", 3), "漢字だ");
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_of_a_kind_are_logged_and_those_that_follow_are_summed_up() {
        let (mut limit, begun) = (LogLimit::new(2), Instant::now());
        let allowed: Vec<_> = (0..1_000).filter_map(|_| limit.allows("a", 1, begun)).collect();
        assert_eq!(allowed, [0, 0]);
        assert_eq!(limit.allows("b", 1, begun), Some(0), "another kind has its own limit");
        assert_eq!(limit.over(begun + SECOND * 59), []);
        assert_eq!(limit.due(), Some(begun + PAUSE));
        assert_eq!(limit.over(begun + PAUSE), [("a", 998)]);
        assert_eq!(limit.due(), None);
        assert!(limit.kinds.is_empty(), "nothing piles up");
    }

    #[test]
    fn a_new_minute_has_its_own_lines_and_the_sum_of_the_last_one() {
        let (mut limit, begun) = (LogLimit::new(1), Instant::now());
        assert_eq!([0, 1, 2].map(|_| limit.allows("a", 1, begun)), [Some(0), None, None]);
        assert_eq!([0, 1].map(|_| limit.allows("a", 1, begun + PAUSE)), [Some(2), None]);
        assert_eq!(limit.over(begun + PAUSE * 2), [("a", 1)]);
    }

    /// Whatever the phase in which sums are taken.
    #[test]
    fn a_flood_without_end_has_a_sum_each_minute() {
        let (mut limit, begun) = (LogLimit::new(1), Instant::now());
        let (mut logged, mut summed) = (0, 0);
        for second in 0..600 {
            let now = begun + SECOND * second;
            if let Some(more) = limit.allows("a", 1, now) {
                (logged, summed) = (logged + 1, summed + more);
            }
            if second % 60 == 30 {
                summed += limit.over(now).iter().map(|(_, more)| more).sum::<u64>();
            }
        }
        assert_eq!((logged, summed), (10, 9 * 59));
    }

    #[test]
    fn a_long_entry_is_logged_as_a_whole_and_takes_its_lines() {
        let (mut limit, begun) = (LogLimit::new(30), Instant::now());
        assert_eq!([0, 1, 2].map(|_| limit.allows("a", 21, begun)), [Some(0), Some(0), None]);
    }

    #[test]
    fn a_full_limit_counts_the_kinds_that_it_has() {
        let (mut limit, now) = (LogLimit::new(1), Instant::now());
        assert!(limit.may_count(&"a", 1));
        limit.allows("a", 1, now);
        assert!(limit.may_count(&"a", 1) && !limit.may_count(&"b", 1));
    }
}
