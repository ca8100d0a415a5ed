//! Kubernetes quantities, exact: the text, its value in billionths, and the form in which it is printed. The rules
//! are those of apimachinery's `resource.Quantity`. No floating point is involved in parsing, and no text, however
//! long or strange, may cause a panic or more than one pass over it.
//!
//! There are four differences, all outside the range of a real Node. A text without a digit (`Mi`, `-`, `.`) is an
//! error, as Kubernetes' own grammar has it; apimachinery's parser reads 0. Decimal values end at 10^29;
//! apimachinery's don't. Values from 1000E keep their `E`; apimachinery prints no suffix and so another value. A
//! value is always printed in its canonical form; apimachinery echoes some texts unchanged (`+5m`, `1.001k`).

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    ops::{Add, Sub},
    str::FromStr,
};

use thiserror::Error;

#[cfg(test)]
mod tests;

/// The number of billionths in a unit.
const NANOS: i128 = 1_000_000_000;
/// The largest value of binary text, as in apimachinery: 2^63-1 units.
const BINARY_CAP: i128 = i64::MAX as i128 * NANOS;
/// The largest value of any kind: 10^29 units.
const CAP: i128 = 10_i128.pow(38);

/// The decimal suffixes and their powers of ten.
const DECIMAL_SUFFIXES: [(&str, i64); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];

/// The binary suffixes; each is 2^10 times the one before, the first is 2^10.
const BINARY_SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// An amount of a resource: cores, bytes or a count.
///
/// Equality and order are those of the value: `1Ki` equals `1024`.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The format in which a quantity is printed: that of the parsed text.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Format {
    /// `1500m`, `2k`.
    DecimalSi,
    /// `1Ki`; values below 1024 and fractions are printed as decimals.
    BinarySi,
    /// `12e6`.
    DecimalExponent,
}

/// The reason why a text is no quantity.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum QuantityError {
    /// There is no digit before the suffix.
    #[error("it has to start with a number, such as 4, 1.5 or 16Gi")]
    NoNumber,
    /// The text after the number is no suffix.
    #[error(
        "{0:?} is no suffix of a quantity: use n, u, m, k, M, G, T, P, E, a binary one (Ki, Mi, Gi, Ti, Pi, Ei) or an \
         exponent (e3), with no space"
    )]
    Suffix(String),
}

/// The factor of a suffix.
enum Scale {
    Ten(i64),
    Two(u32),
}

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// Returns a whole number of units.
    pub const fn from_units(units: i64) -> Self {
        Self { nanos: units as i128 * NANOS, format: Format::DecimalSi }
    }

    /// Returns the format in which the quantity is printed.
    pub fn format(self) -> Format {
        self.format
    }

    /// Returns true if the quantity is 0.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Returns true if the quantity is less than 0.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Returns true if the quantity is a whole number of units.
    pub fn is_whole(self) -> bool {
        self.nanos % NANOS == 0
    }

    /// Returns the number of units, rounded away from zero and clamped to i64.
    pub fn value(self) -> i64 {
        clamp(divide_away_from_zero(self.nanos, NANOS))
    }

    /// Returns the number of thousandths, rounded away from zero and clamped to i64.
    pub fn milli_value(self) -> i64 {
        clamp(divide_away_from_zero(self.nanos, NANOS / 1000))
    }

    /// Returns true if the quantity is more than this percentage of another one.
    pub(crate) fn is_more_than_percent(self, percent: i64, of: Self) -> bool {
        // Both are at most 10^38; dividing before multiplying costs less than a billionth of a percent.
        self.nanos / i128::from(percent.max(1)) > of.nanos / 100
    }

    /// Returns the nearest floating-point number, for computing with prices; amounts must never be compared by it.
    #[allow(clippy::cast_precision_loss, reason = "the nearest number is what is asked for")]
    pub fn to_f64(self) -> f64 {
        self.nanos as f64 / NANOS as f64
    }

    /// Returns the format of a sum: that of `self`, or of the other if `self` is zero.
    fn format_with(self, other: Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }
}

fn divide_away_from_zero(nanos: i128, unit: i128) -> i128 {
    let whole = nanos / unit;
    if nanos % unit == 0 { whole } else { whole + nanos.signum() }
}

fn clamp(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..).unwrap_or_default()),
            Some(b'+') => (false, text.get(1..).unwrap_or_default()),
            _ => (false, text),
        };
        let (whole, rest) = split_digits(rest);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(QuantityError::NoNumber);
        }
        let (scale, mut format) = parse_suffix(suffix)?;
        let magnitude = match scale {
            Scale::Ten(power) => decimal_nanos(whole, fraction, power),
            Scale::Two(power) => binary_nanos(whole, fraction, power),
        };
        if format == Format::BinarySi && magnitude > 0 && magnitude < NANOS {
            format = Format::DecimalSi;
        }
        Ok(Self { nanos: if negative { -magnitude } else { magnitude }, format })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn parse_suffix(suffix: &str) -> Result<(Scale, Format), QuantityError> {
    if let Some((_, power)) = DECIMAL_SUFFIXES.iter().find(|(known, _)| *known == suffix) {
        return Ok((Scale::Ten(*power), Format::DecimalSi));
    }
    if let Some((_, power)) = BINARY_SUFFIXES.iter().zip((10..).step_by(10)).find(|(known, _)| **known == suffix) {
        return Ok((Scale::Two(power), Format::BinarySi));
    }
    suffix
        .strip_prefix(['e', 'E'])
        .and_then(|exponent| exponent.parse().ok())
        .map(|power| (Scale::Ten(power), Format::DecimalExponent))
        .ok_or_else(|| QuantityError::Suffix(suffix.chars().take(20).collect()))
}

/// Returns `whole.fraction` times a power of ten in billionths, rounded up, at most [`CAP`].
fn decimal_nanos(whole: &str, fraction: &str, power: i64) -> i128 {
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    // This many digits make up the billionths; the digits after them are rounded up.
    let kept = length(whole).saturating_add(power).saturating_add(9);
    let mut nanos: i128 = 0;
    for (digit, position) in whole.bytes().chain(fraction.bytes()).zip(0_i64..) {
        if position < kept {
            nanos = nanos.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
            if nanos >= CAP {
                return CAP;
            }
        } else if digit != b'0' {
            return nanos + 1;
        }
    }
    if nanos == 0 {
        return 0;
    }
    let mut missing = kept.saturating_sub(length(whole).saturating_add(length(fraction)));
    while missing > 0 {
        nanos = nanos.saturating_mul(10);
        if nanos >= CAP {
            return CAP;
        }
        missing -= 1;
    }
    nanos
}

/// Returns `whole.fraction` times a power of two (60 at most) in billionths, rounded up, at most [`BINARY_CAP`].
fn binary_nanos(whole: &str, fraction: &str, power: u32) -> i128 {
    let mut units: i128 = 0;
    for digit in whole.bytes() {
        units = units * 10 + i128::from(digit - b'0');
        if units > i128::from(i64::MAX) {
            return BINARY_CAP;
        }
    }
    // The fraction is multiplied digit by digit from its end; the last carry is units.
    let mut carry: i128 = 0;
    let mut nanos: i128 = 0;
    let mut beyond = false;
    for (index, digit) in fraction.bytes().enumerate().rev() {
        let product = (i128::from(digit - b'0') << power) + carry;
        carry = product / 10;
        let digit = product % 10;
        match u32::try_from(index) {
            Ok(index @ 0..=8) => nanos += digit * 10_i128.pow(8 - index),
            Ok(_) | Err(_) => beyond |= digit != 0,
        }
    }
    // 2^63 * 2^60 units fit into 127 bits; billionths of them don't, so the cap comes first.
    let units = (units << power) + carry;
    if units >= i128::from(i64::MAX) {
        return BINARY_CAP;
    }
    units * NANOS + nanos + i128::from(beyond)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        match self.format {
            Format::BinarySi if self.is_whole() && (self.nanos / NANOS).abs() >= 1024 => {
                let mut units = self.nanos / NANOS;
                let mut suffix = "";
                for larger in BINARY_SUFFIXES {
                    if units % 1024 != 0 {
                        break;
                    }
                    units /= 1024;
                    suffix = larger;
                }
                write!(f, "{units}{suffix}")
            }
            Format::BinarySi | Format::DecimalSi => {
                let (mantissa, exponent) = self.in_thousands(18);
                let suffix = DECIMAL_SUFFIXES.iter().find(|(_, power)| *power == exponent).map_or("", |known| known.0);
                write!(f, "{mantissa}{suffix}")
            }
            Format::DecimalExponent => match self.in_thousands(i64::MAX) {
                (mantissa, 0) => write!(f, "{mantissa}"),
                (mantissa, exponent) => write!(f, "{mantissa}e{exponent}"),
            },
        }
    }
}

impl Quantity {
    /// Returns mantissa and exponent, which is the largest possible multiple of three up to `largest`. Never call it
    /// for zero.
    fn in_thousands(self, largest: i64) -> (i128, i64) {
        let (mut mantissa, mut exponent) = (self.nanos, -9);
        while mantissa % 1000 == 0 && exponent + 3 <= largest {
            mantissa /= 1000;
            exponent += 3;
        }
        (mantissa, exponent)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The sum, at most 10^29 in magnitude; a zero takes the format of the other.
impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos).clamp(-CAP, CAP), format: self.format_with(other) }
    }
}

/// The difference, at most 10^29 in magnitude; a zero takes the format of the other.
impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos).clamp(-CAP, CAP), format: self.format_with(other) }
    }
}
