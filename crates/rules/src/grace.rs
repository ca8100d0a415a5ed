//! The grace period before a temporary lack of capacity becomes an error. On bare metal, a host may soon become
//! available although the Machine reports that there is none.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::capi::CAPACITY_ERROR_GRACE;
use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};

use super::{GoDuration, Problem, ProblemKind, duration::DurationError};

const NEVER: &str = "never";
const DEFAULT: GoDuration = GoDuration::from_nanos(5 * 60 * 1_000_000_000);

/// The time after which a lack of capacity is an error.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Grace {
    /// After this time, which isn't negative; 0 means at once.
    For(GoDuration),
    /// Never.
    Never,
}

/// The error for a text that isn't a grace period.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum GraceError {
    /// The text is neither a duration nor `never`.
    #[error("{0}, or {NEVER}")]
    Duration(#[from] DurationError),
    /// The duration is negative.
    #[error("it has to be 0 or longer, or {NEVER}")]
    Negative,
}

impl Default for Grace {
    fn default() -> Self {
        Self::For(DEFAULT)
    }
}

impl Grace {
    /// Returns the grace period in a group's annotation, or `default` if the group has no such annotation.
    ///
    /// # Errors
    /// If the annotation is invalid.
    pub fn of_group(annotations: &BTreeMap<ArcStr, ArcStr>, default: Self) -> Result<Self, Problem> {
        let Some(text) = annotations.get(CAPACITY_ERROR_GRACE).map(|text| text.trim()).filter(|text| !text.is_empty())
        else {
            return Ok(default);
        };
        text.parse().map_err(|error: GraceError| {
            let rule = format!("{error}; it is ignored");
            Problem::annotation(ProblemKind::Options, CAPACITY_ERROR_GRACE, text, &rule)
        })
    }

    /// Returns true if a lack of capacity that began at `since` is an error at `now`.
    #[must_use]
    pub fn is_over(self, since: Timestamp, now: Timestamp) -> bool {
        match self {
            Self::For(grace) => now.duration_since(since) >= SignedDuration::from_nanos(grace.as_nanos()),
            Self::Never => false,
        }
    }
}

impl FromStr for Grace {
    type Err = GraceError;

    fn from_str(text: &str) -> Result<Self, GraceError> {
        if text.eq_ignore_ascii_case(NEVER) {
            return Ok(Self::Never);
        }
        let grace: GoDuration = text.parse()?;
        if grace.as_nanos() < 0 { Err(GraceError::Negative) } else { Ok(Self::For(grace)) }
    }
}

/// Writes the form that `FromStr` parses.
impl fmt::Display for Grace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(grace) => grace.fmt(f),
            Self::Never => f.write_str(NEVER),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[rstest]
    #[case("5m", Ok(Grace::default()))]
    #[case("0", Ok(Grace::For(GoDuration::from_nanos(0))))]
    #[case("90s", Ok(Grace::For(GoDuration::from_nanos(90 * SECOND))))]
    #[case("never", Ok(Grace::Never))]
    #[case("Never", Ok(Grace::Never))]
    #[case("-1s", Err("it has to be 0 or longer, or never"))]
    #[case("5", Err("a number lacks its unit: use h, m, s, ms, us or ns, as in 10m, or never"))]
    #[case("", Err("it has to be numbers with units, such as 10m, 1h30m or 90s, or never"))]
    fn a_grace_period_is_a_duration_or_never(#[case] text: &str, #[case] expected: Result<Grace, &str>) {
        assert_eq!(text.parse::<Grace>().map_err(|error| error.to_string()), expected.map_err(str::to_owned));
    }

    #[rstest]
    #[case::before_its_end("5m", 299, false)]
    #[case::at_its_end("5m", 300, true)]
    #[case::at_once("0", 0, true)]
    #[case::a_time_to_come("0", -10, false)]
    #[case::never("never", i64::from(u32::MAX), false)]
    fn it_is_over(#[case] grace: Grace, #[case] seconds: i64, #[case] expected: bool) {
        let since: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(grace.is_over(since, since + SignedDuration::from_secs(seconds)), expected);
    }

    #[rstest]
    #[case::none(None, Ok(Grace::Never))]
    #[case::empty(Some(" "), Ok(Grace::Never))]
    #[case::its_own(Some(" 5m "), Ok(Grace::default()))]
    #[case::wrong(
        Some("soon"),
        Err(
            "annotation capi-autoscaler-provider.io/capacity-error-grace is \"soon\": it has to be numbers with units, such \
             as 10m, 1h30m or 90s, or never; it is ignored"
        )
    )]
    fn an_annotation_wins_over_the_operators(#[case] text: Option<&str>, #[case] expected: Result<Grace, &str>) {
        let annotations = text.map(|text| (CAPACITY_ERROR_GRACE.into(), text.into())).into_iter().collect();
        let found = Grace::of_group(&annotations, Grace::Never).map_err(|problem| problem.message);
        assert_eq!(found, expected.map_err(str::to_owned));
    }
}
