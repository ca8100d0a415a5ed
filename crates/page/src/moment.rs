//! Times for people: the age or duration of something, with the exact time behind it.

use jiff::Timestamp;
use maud::{Markup, html};

/// Formats a duration in its two largest units, such as `3 h 5 min`.
pub(super) fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |count: u64, unit: &str, rest: u64, small: &str| {
        if rest == 0 { format!("{count} {unit}") } else { format!("{count} {unit} {rest} {small}") }
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => two(minutes, "min", seconds % 60, "s"),
        3600..86_400 => two(hours, "h", minutes % 60, "min"),
        _ => two(days, "d", hours % 24, "h"),
    }
}

/// The time at which a state was taken, to which other times are relative.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now(pub(super) Timestamp);

impl Now {
    /// Returns the seconds since a time; negative if it lies in the future.
    pub(super) fn seconds_since(self, moment: Timestamp) -> i64 {
        self.0.duration_since(moment).as_secs()
    }

    /// Renders the time since a moment, or until it, with the moment itself for programs and as a tooltip.
    pub(super) fn ago(self, moment: Timestamp) -> Markup {
        let seconds = self.seconds_since(moment);
        let span = span(seconds.unsigned_abs());
        let text = if seconds >= 0 { format!("{span} ago") } else { format!("in {span}") };
        html! { time datetime=(moment) title=(moment) { (text) } }
    }

    /// Renders the age of something that was created at this time.
    pub(super) fn age(self, moment: Timestamp) -> Markup {
        let seconds = u64::try_from(self.seconds_since(moment)).unwrap_or_default();
        html! { time datetime=(moment) title=(moment) { (span(seconds)) } }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, "0 s")]
    #[case(59, "59 s")]
    #[case(60, "1 min")]
    #[case(61, "1 min 1 s")]
    #[case(3599, "59 min 59 s")]
    #[case(3600, "1 h")]
    #[case(11_100, "3 h 5 min")]
    #[case(86_400, "1 d")]
    #[case(187_200, "2 d 4 h")]
    fn a_time_is_said_in_its_two_largest_units(#[case] seconds: u64, #[case] expected: &str) {
        assert_eq!(span(seconds), expected);
    }

    #[rstest]
    #[case("2026-01-01T00:00:00Z", "1 min ago")]
    #[case("2026-01-01T00:03:00Z", "in 2 min")]
    fn a_moment_is_seen_from_now(#[case] moment: Timestamp, #[case] expected: &str) {
        let shown = Now("2026-01-01T00:01:00Z".parse().unwrap()).ago(moment).into_string();
        assert!(shown.ends_with(&format!(">{expected}</time>")), "{shown}");
    }
}
