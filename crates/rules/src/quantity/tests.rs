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
    assert_nanos(&["0", "0n", "0u", "0m", "0k", "0M", "0G", "0T", "00", "0."].map(|text| (text, 0)), DecimalSi);
    assert_nanos(&["0Ki", "0Mi", "0Gi", "0Ti"].map(|text| (text, 0)), BinarySi);
    assert_nanos(&[("0e3", 0)], DecimalExponent);
}

#[test]
fn binary_suffixes_are_powers_of_1024() {
    let ki = |power: u32| 1024_i128.pow(power);
    assert_nanos(
        &[
            ("1Ki", K),
            ("7Mi", 7 * ki(2) * U),
            ("6Gi", 6 * ki(3) * U),
            ("5Ti", 5 * ki(4) * U),
            ("4Pi", 4 * ki(5) * U),
            ("3Ei", 3 * ki(6) * U),
        ],
        BinarySi,
    );
}

#[test]
fn decimal_suffixes_are_powers_of_1000() {
    let thousand = |power: u32| 1000_i128.pow(power) * U;
    assert_nanos(
        &[
            ("5n", 5),
            ("4u", 4_000),
            ("3m", 3_000_000),
            ("1", U),
            ("8k", 8 * thousand(1)),
            ("7M", 7 * thousand(2)),
            ("6G", 6 * thousand(3)),
            ("5T", 5 * thousand(4)),
            ("2P", 2 * thousand(5)),
            ("1E", thousand(6)),
        ],
        DecimalSi,
    );
}

#[test]
fn exponents_are_powers_of_ten() {
    let ten = |power: u32| 10_i128.pow(power) * U;
    assert_nanos(
        &[
            ("1E-3", U / 1000),
            ("1e3", ten(3)),
            ("1E18", ten(18)),
            ("1E+3", ten(3)),
            ("1e03", ten(3)),
            ("0.5e-1", U / 20),
            ("1.2e3", 1_200 * U),
            ("1.53E12", 153 * ten(10)),
        ],
        DecimalExponent,
    );
}

#[test]
fn fractions_are_exact() {
    assert_nanos(
        &[
            ("100.035k", 100_035 * U),
            ("0.001", U / 1000),
            (".001", U / 1000),
            ("0.00050k", U / 2),
            ("0.50000", U / 2),
            ("7.123456M", 7_123_456 * U),
            ("6.987654321G", 6_987_654_321 * U),
            ("2.5P", 2_500_000_000_000_000 * U),
            ("1.01E", 1_010_000_000_000_000_000 * U),
            ("1.", U),
            ("1.G", 1_000_000_000 * U),
        ],
        DecimalSi,
    );
    assert_nanos(&[("100.035Ki", 102_435_840_000_000), ("0.5Mi", 512 * K), ("0.1Ki", 102_400_000_000)], BinarySi);
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
    assert_eq!((-right + left), left - right);
}

#[test]
fn questions_about_a_value() {
    assert!(quantity("0Ki").is_zero() && !quantity("1n").is_zero());
    assert!(quantity("-1n").is_negative() && !quantity("0").is_negative() && !quantity("1").is_negative());
    assert!(quantity("1.0").is_whole() && !quantity("1500m").is_whole());
    assert_eq!(Quantity::from_units(-5), quantity("-5"));
    assert_eq!(Quantity::from_units(i64::MIN).value(), i64::MIN);
    assert_eq!(Quantity::ZERO, quantity("0"));
    assert_eq!(quantity("1Mi").format(), BinarySi);
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
            let _ = (quantity.value(), quantity.milli_value(), quantity + quantity, quantity - -quantity, quantity.to_string());
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
