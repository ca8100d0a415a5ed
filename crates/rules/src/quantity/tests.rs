//! Values and printed forms as in apimachinery, and properties that hold for every text.

use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::*;
use rstest::rstest;

use super::{Format::*, *};

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

/// Asserts that each text, with and without a plus sign, has this many billionths, and its negative the opposite.
fn assert_nanos(cases: &[(&str, i128)], format: Format) {
    for (text, nanos) in cases {
        assert_eq!((quantity(text).nanos, quantity(text).format), (*nanos, format), "{text}");
        assert_eq!(quantity(&format!("+{text}")).nanos, *nanos, "+{text}");
        assert_eq!(quantity(&format!("-{text}")).nanos, -nanos, "-{text}");
    }
}

const U: i128 = NANOS;
const K: i128 = 1024 * NANOS;

#[test]
fn zero_keeps_the_format_of_its_suffix() {
    assert_nanos(&["0", "0n", "0m", "0k", "0T", "00", "0."].map(|text| (text, 0)), DecimalSi);
    assert_nanos(&[("0Ki", 0), ("0Ti", 0)], BinarySi);
    assert_nanos(&[("0e3", 0)], DecimalExponent);
}

#[rstest]
#[case::binary(&["1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"], 1024, 1024 * U, BinarySi)]
#[case::decimal(&["1n", "1u", "1m", "1", "1k", "1M", "1G", "1T", "1P", "1E"], 1000, 1, DecimalSi)]
#[case::exponents(&["1e-3", "1E0", "1e3", "1E+6", "1e09", "1E12"], 1000, U / 1000, DecimalExponent)]
fn each_suffix_is_a_multiple_of_the_one_before(
    #[case] texts: &[&str],
    #[case] factor: i128,
    #[case] first: i128,
    #[case] format: Format,
) {
    for (text, power) in texts.iter().zip(0..) {
        assert_nanos(&[(text, first * factor.pow(power))], format);
    }
}

#[test]
fn fractions_are_exact() {
    assert_nanos(
        &[
            ("100.035k", 100_035 * U),
            (".001", U / 1000),
            ("0.00050k", U / 2),
            ("0.50000", U / 2),
            ("6.987654321G", 6_987_654_321 * U),
            ("1.01E", 1_010_000_000_000_000_000 * U),
            ("1.", U),
            ("1.G", 1_000_000_000 * U),
        ],
        DecimalSi,
    );
    assert_nanos(&[("100.035Ki", 102_435_840_000_000), ("0.5Mi", 512 * K), ("0.1Ki", 102_400_000_000)], BinarySi);
    assert_nanos(&[("0.5e-1", U / 20), ("1.2e3", 1_200 * U)], DecimalExponent);
}

#[test]
fn a_quantity_finer_than_a_billionth_is_rounded_away_from_zero() {
    assert_nanos(
        &[
            ("3.001n", 4),
            ("0.0000000001", 1),
            ("0.9n", 1),
            ("0.00000012345", 124),
            ("1.0000000000000000000000000000000000000000000000000000000000000000000000000000001", U + 1),
        ],
        DecimalSi,
    );
    assert_nanos(&[("1.1E-9", 2), ("0.5e-9", 1), ("1e-400", 1), ("1e-9223372036854775808", 1)], DecimalExponent);
    assert_nanos(&[("1.0000000000001Ki", K + 1)], BinarySi);
}

#[test]
fn binary_text_below_1_becomes_decimal() {
    assert_nanos(&[("0.000000000001Ki", 2)], DecimalSi);
    assert_nanos(&[("0.0009765625Ki", U)], BinarySi);
}

#[test]
fn binary_text_is_capped_at_the_largest_i64() {
    let cap = i128::from(i64::MAX) * U;
    let long = format!("{}Ki", "9".repeat(400));
    assert_nanos(
        &[
            ("9Ei", cap),
            ("8Ei", cap),
            ("9223372036854775807Ki", cap),
            ("7.9999999999999999999999999Ei", cap),
            (&long, cap),
        ],
        BinarySi,
    );
}

#[test]
fn decimal_text_is_capped_at_1e29() {
    let long = "9".repeat(400);
    assert_nanos(&[("100000000000E", CAP), ("999999999999E", CAP), (&long, CAP)], DecimalSi);
    assert_nanos(&[("1e28", CAP / 10), ("1e29", CAP), ("1e30", CAP), ("1e9223372036854775807", CAP)], DecimalExponent);
}

#[rstest]
#[case::empty("", None)]
#[case::a_word("aoeu", None)]
#[case::leading_space(" 1", None)]
#[case::a_suffix_alone("Mi", None)]
#[case::a_sign_alone("-", None)]
#[case::a_point_alone(".", None)]
#[case::two_signs("+-1", None)]
#[case::trailing_space("1 ", Some(" "))]
#[case::space_within("1 Gi", Some(" Gi"))]
#[case::lower_case_mi("0.1mi", Some("mi"))]
#[case::upper_case_k("1K", Some("K"))]
#[case::bytes("16GB", Some("GB"))]
#[case::i_alone(".5i", Some("i"))]
#[case::an_empty_exponent("1e", Some("e"))]
#[case::two_exponents("1e1e1", Some("e1e1"))]
#[case::an_exponent_beyond_i64("1e9223372036854775808", Some("e9223372036854775808"))]
#[case::comma("1,5", Some(",5"))]
#[case::other_digits("1٣", Some("٣"))]
fn other_texts_are_errors(#[case] text: &str, #[case] suffix: Option<&str>) {
    let expected = suffix.map_or(QuantityError::NoNumber, |suffix| QuantityError::Suffix(suffix.to_owned()));
    assert_eq!(text.parse::<Quantity>(), Err(expected));
}

#[rstest]
#[case("1Ki", "1Ki")]
#[case("1025024Mi", "1001Gi")]
#[case("1024Gi", "1Ti")]
#[case("0.5Gi", "512Mi")]
#[case("1.1Gi", "1181116006400m")]
#[case(".001Ki", "1024m")]
#[case(".000000000001Ki", "2n")]
#[case("0.0048828125Ki", "5")]
#[case("1.0009765625Ki", "1025")]
#[case("9Ei", "9223372036854775807")]
#[case("6Ki", "6Ki")]
#[case("1025", "1025")]
#[case("5000m", "5")]
#[case("1234567m", "1234567m")]
#[case("3k", "3k")]
#[case("1080n", "1080n")]
#[case("1080u", "1080u")]
#[case("1e12", "1e12")]
#[case("1000M", "1G")]
#[case("0.001T", "1G")]
#[case("1000u", "1m")]
#[case("1.08", "1080m")]
#[case("0.5", "500m")]
#[case(".001e12", "1e9")]
#[case("0.001e0", "1e-3")]
#[case("1000e-12", "1e-9")]
#[case("80e-3", "80e-3")]
#[case("1e14", "100e12")]
#[case("5e0", "5")]
#[case("00", "0")]
#[case("0Ki", "0")]
#[case("1000E", "1000E")]
#[case("16000000000", "16G")]
#[case("16384", "16384")]
fn it_is_printed_in_canonical_form(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(quantity(text).to_string(), expected);
    if !quantity(text).is_zero() {
        assert_eq!(quantity(&format!("-{text}")).to_string(), format!("-{expected}"));
    }
}

#[rstest]
#[case("9.01", 10, 9010)]
#[case("-9.01", -10, -9010)]
#[case("1n", 1, 1)]
#[case("-1n", -1, -1)]
#[case("0", 0, 0)]
#[case("1500m", 2, 1500)]
#[case("1Ki", 1024, 1_024_000)]
#[case("9223372036854775807", i64::MAX, i64::MAX)]
#[case("-12E", i64::MIN, i64::MIN)]
#[case("12E", i64::MAX, i64::MAX)]
fn values_are_rounded_away_from_zero_and_end_at_i64(#[case] text: &str, #[case] units: i64, #[case] millis: i64) {
    assert_eq!((quantity(text).value(), quantity(text).milli_value()), (units, millis));
}

#[rstest]
#[case("0", 0.0)]
#[case("2Ki", 2048.0)]
#[case("1.1Ki", 1126.4)]
#[case("1Mi", 1_048_576.0)]
#[case("2Gi", 2_147_483_648.0)]
#[case("-1500m", -1.5)]
#[case("1n", 1e-9)]
#[case("12E", 1.2e19)]
#[case("100000000000E", 1e29)]
fn the_nearest_number_in_floating_point(#[case] text: &str, #[case] expected: f64) {
    assert_eq!(quantity(text).to_f64().to_bits(), expected.to_bits());
}

#[rstest]
#[case("0", "0", Ordering::Equal)]
#[case("0Ki", "0n", Ordering::Equal)]
#[case("100m", "50m", Ordering::Greater)]
#[case("50m", "100m", Ordering::Less)]
#[case("10000T", "100Gi", Ordering::Greater)]
#[case("1Ki", "1024", Ordering::Equal)]
#[case("1e3", "1k", Ordering::Equal)]
#[case("-1", "1n", Ordering::Less)]
#[case("9Ei", "9223372036854775807", Ordering::Equal)]
fn order_is_by_value(#[case] left: &str, #[case] right: &str, #[case] expected: Ordering) {
    let (left, right) = (quantity(left), quantity(right));
    assert_eq!(left.cmp(&right), expected);
    assert_eq!(left == right, expected == Ordering::Equal);
}

#[rstest]
#[case("100m", "0", "100m", "100m")]
#[case("0", "1Gi", "1Gi", "-1Gi")]
#[case("0", "100m", "100m", "-100m")]
#[case("1Gi", "0", "1Gi", "1Gi")]
#[case("1Gi", "1Gi", "2Gi", "0")]
#[case("1Gi", "24M", "1097741824", "1049741824")]
#[case("1", "1n", "1000000001n", "999999999n")]
#[case("100000000000E", "1", "100000000000E", "99999999999999999999999999999")]
fn sums_and_differences(#[case] left: &str, #[case] right: &str, #[case] sum: &str, #[case] difference: &str) {
    let (left, right) = (quantity(left), quantity(right));
    assert_eq!((left + right).to_string(), sum);
    assert_eq!((left - right).to_string(), difference);
}

#[test]
fn a_binary_quantity_that_1024_does_not_divide_prints_without_suffix_and_parses_as_decimal() {
    let binary = quantity("1.953125Ki");
    assert_eq!((binary.format(), binary.to_string().as_str()), (BinarySi, "2000"));
    assert_eq!((quantity("2000").format(), quantity("2000").to_string().as_str()), (DecimalSi, "2k"));
}

/// Returns texts most of which are quantities.
fn texts() -> impl Strategy<Value = String> {
    let suffix = prop_oneof![
        prop::sample::select(DECIMAL_SUFFIXES.map(|(suffix, _)| suffix.to_owned()).to_vec()),
        prop::sample::select(BINARY_SUFFIXES.map(str::to_owned).to_vec()),
        "[eE][+-]?[0-9]{1,3}",
    ];
    ("[+-]?([0-9]{1,30}(\\.[0-9]{0,30})?|\\.[0-9]{1,30})", suffix).prop_map(|(number, suffix)| number + &suffix)
}

proptest! {
    #[test]
    fn no_text_panics(text in any::<String>()) {
        let _ = text.parse::<Quantity>();
    }

    #[test]
    fn nothing_near_a_quantity_panics(text in "[0-9.+eEinumkKMGTP-]{0,40}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let _ = (quantity.value(), quantity.milli_value(), quantity + quantity, quantity - quantity, quantity.to_string());
        }
    }

    #[test]
    fn a_printed_quantity_parses_to_the_same_value_and_keeps_its_text_unless_it_turns_decimal(text in texts()) {
        let first = quantity(&text);
        let again = quantity(&first.to_string());
        prop_assert_eq!(again, first);
        // Binary text without a suffix is read as decimal, which may print it shorter.
        let became_decimal = first.format() == BinarySi && again.format() == DecimalSi;
        prop_assert!(became_decimal || again.to_string() == first.to_string());
    }

    #[test]
    fn order_equality_and_hash_agree(left in texts(), right in texts()) {
        let (left, right) = (quantity(&left), quantity(&right));
        prop_assert_eq!(left.cmp(&right), right.cmp(&left).reverse());
        prop_assert_eq!(left < right, (right - left) > Quantity::ZERO);
        let hash = |quantity: Quantity| {
            let mut hasher = DefaultHasher::new();
            quantity.hash(&mut hasher);
            hasher.finish()
        };
        prop_assert!(left != right || hash(left) == hash(right));
    }

    #[test]
    fn whole_numbers_are_themselves(units in any::<i64>()) {
        prop_assert_eq!(quantity(&units.to_string()), Quantity::from_units(units));
        prop_assert_eq!(Quantity::from_units(units).value(), units);
    }
}
