//! Go's durations: the texts that `time.ParseDuration` accepts, with its exact results, and the text that
//! `Duration.String` prints. Annotations that override autoscaling times use them.

use std::{fmt, str::FromStr};

use thiserror::Error;

#[cfg(test)]
mod tests;

/// The magnitude of `i64::MIN`, which only a negative duration can have.
const LIMIT: u64 = 1 << 63;

/// The units and their nanoseconds, with both signs for micro (U+00B5 and U+03BC).
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A span of time in nanoseconds, as Go's `time.Duration`.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct GoDuration(i64);

/// The reason why a text is no duration.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum DurationError {
    /// A number is missing; a sign is allowed only at the very start.
    #[error("it has to be numbers with units, such as 10m, 1h30m or 90s")]
    Malformed,
    /// A number has no unit.
    #[error("a number lacks its unit: use h, m, s, ms, us or ns, as in 10m")]
    MissingUnit,
    /// A unit is unknown.
    #[error("{0:?} is no unit of time: use h, m, s, ms, us or ns")]
    UnknownUnit(String),
    /// The duration exceeds some 292 years.
    #[error("it is longer than 2562047h47m16.854775807s, the longest duration")]
    TooLong,
}

impl GoDuration {
    /// Returns a duration of this many nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns the number of nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self(0));
        }
        if rest.is_empty() {
            return Err(DurationError::Malformed);
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let part;
            (part, rest) = parse_part(rest)?;
            total = total.checked_add(part).filter(|total| *total <= LIMIT).ok_or(DurationError::TooLong)?;
        }
        if negative {
            return Ok(Self(0_i64.checked_sub_unsigned(total).unwrap_or(i64::MIN)));
        }
        i64::try_from(total).map(Self).map_err(|_| DurationError::TooLong)
    }
}

/// Returns the nanoseconds of the first number with its unit, and the rest of the text.
fn parse_part(text: &str) -> Result<(u64, &str), DurationError> {
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationError::Malformed);
    }
    let (unit, rest) = rest.split_at(rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len()));
    if unit.is_empty() {
        return Err(DurationError::MissingUnit);
    }
    let Some((_, nanos)) = UNITS.iter().find(|(known, _)| *known == unit) else {
        return Err(DurationError::UnknownUnit(unit.chars().take(20).collect()));
    };
    whole
        .bytes()
        .try_fold(0_u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
        .and_then(|whole| whole.checked_mul(*nanos))
        .and_then(|whole| whole.checked_add(fraction_nanos(fraction, *nanos)))
        .filter(|nanos| *nanos <= LIMIT)
        .map(|nanos| (nanos, rest))
        .ok_or(DurationError::TooLong)
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// Returns the fraction of a unit, truncated (not rounded) to nanoseconds. Go computes it in floating point and
/// ignores digits that don't fit into 63 bits; the same is done here, so that every text has Go's result to the
/// nanosecond.
fn fraction_nanos(digits: &str, unit: u64) -> u64 {
    let mut value: u64 = 0;
    let mut scale = 1.0_f64;
    for digit in digits.bytes() {
        if value > (LIMIT - 1) / 10 {
            break;
        }
        let next = value * 10 + u64::from(digit - b'0');
        if next > LIMIT {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let nanos = (value as f64 * (unit as f64 / scale)) as u64;
    nanos
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}\u{b5}s", Decimal(nanos, 3)),
            1_000_000..1_000_000_000 => write!(f, "{}ms", Decimal(nanos, 6)),
            1_000_000_000.. => {
                let minutes = nanos / 60_000_000_000;
                let (hours, minutes) = (minutes / 60, minutes % 60);
                if hours > 0 {
                    write!(f, "{hours}h")?;
                }
                if hours > 0 || minutes > 0 {
                    write!(f, "{minutes}m")?;
                }
                write!(f, "{}s", Decimal(nanos % 60_000_000_000, 9))
            }
        }
    }
}

/// A value divided by a power of ten, without trailing zeros.
struct Decimal(u64, u32);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = 10_u64.pow(self.1);
        write!(f, "{}", self.0 / unit)?;
        let mut fraction = self.0 % unit;
        if fraction == 0 {
            return Ok(());
        }
        let mut width = self.1 as usize;
        while fraction.is_multiple_of(10) {
            fraction /= 10;
            width -= 1;
        }
        write!(f, ".{fraction:0width$}")
    }
}
