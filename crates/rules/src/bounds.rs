//! The min and max size of a node group, from its two annotations.

use arcstr::ArcStr;
use std::{collections::BTreeMap, num::IntErrorKind};

use crate::capi::Keys;

use super::{Bounds, Problem, ProblemKind};

/// Returns the bounds that the annotations state. A missing annotation counts as 0. `None` if the max size is 0: such
/// an object isn't autoscaled.
///
/// # Errors
/// If a value isn't a base-10 integer (as Go's strconv reads them: an optional sign and digits), is negative or
/// exceeds i32, or if the max size is below the min size.
pub fn bounds(keys: &Keys, annotations: &BTreeMap<ArcStr, ArcStr>) -> Result<Option<Bounds>, Problem> {
    let min = size(&keys.min_size, annotations)?;
    let max = size(&keys.max_size, annotations)?;
    if max < min {
        let what = match annotations.get(keys.max_size.as_str()) {
            Some(value) => format!("annotation {} is {value:?}", keys.max_size),
            None => format!("annotation {} is missing, which means 0", keys.max_size),
        };
        return Err(Problem::new(
            ProblemKind::Bounds,
            format!(
                "{what}: it must not be less than {} ({min}); raise the maximum or lower the minimum",
                keys.min_size
            ),
        ));
    }
    Ok((max > 0).then_some(Bounds { min, max }))
}

fn size(key: &str, annotations: &BTreeMap<ArcStr, ArcStr>) -> Result<i32, Problem> {
    let Some(value) = annotations.get(key) else { return Ok(0) };
    let problem = |rule: &str| Problem::annotation(ProblemKind::Bounds, key, value, rule);
    match value.parse::<i32>() {
        Ok(size) if size >= 0 => Ok(size),
        Ok(_) => Err(problem("a size must not be negative; set it to 0 or more")),
        Err(error) => match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => {
                Err(problem("a size must be between 0 and 2147483647"))
            }
            _ => Err(problem("a size must be a base-10 integer such as 3, with no space; correct it")),
        },
    }
}

/// Returns a problem for every annotation that begins like the two and ends otherwise, which is a typing error.
#[must_use]
pub fn unknown(keys: &Keys, annotations: &BTreeMap<ArcStr, ArcStr>) -> Vec<Problem> {
    let Keys { size_prefix, min_size, max_size, .. } = keys;
    let is_unknown = |key: &ArcStr| key.starts_with(size_prefix.as_str()) && *key != **min_size && *key != **max_size;
    let problem = |(key, value): (&ArcStr, &ArcStr)| {
        let rule = "no such size annotation is known; known are min-size, max-size; it is ignored";
        Problem::annotation(ProblemKind::Bounds, key, value, rule)
    };
    annotations.iter().filter(|(key, _)| is_unknown(key)).map(problem).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn read(min: Option<&str>, max: Option<&str>) -> Result<Option<Bounds>, Problem> {
        let keys = Keys::default();
        let annotations = [(&keys.min_size, min), (&keys.max_size, max)]
            .into_iter()
            .filter_map(|(key, value)| Some((ArcStr::from(key.as_str()), ArcStr::from(value?))))
            .collect();
        bounds(&keys, &annotations)
    }

    #[rstest]
    #[case::both(Some("1"), Some("10"), Some((1, 10)))]
    #[case::a_missing_min_is_0(None, Some("10"), Some((0, 10)))]
    #[case::min_equal_to_max_is_a_group(Some("3"), Some("3"), Some((3, 3)))]
    #[case::no_annotation_is_no_group(None, None, None)]
    #[case::a_max_of_0_is_no_group(Some("0"), Some("0"), None)]
    #[case::a_plus_sign_as_in_go(Some("+1"), Some("+2"), Some((1, 2)))]
    #[case::a_negative_zero_as_in_go(Some("-0"), Some("2"), Some((0, 2)))]
    #[case::leading_zeros_are_base_10(Some("010"), Some("011"), Some((10, 11)))]
    #[case::the_largest(Some("0"), Some("2147483647"), Some((0, i32::MAX)))]
    fn bounds_are_read(#[case] min: Option<&str>, #[case] max: Option<&str>, #[case] expected: Option<(i32, i32)>) {
        assert_eq!(read(min, max), Ok(expected.map(|(min, max)| Bounds { min, max })));
    }

    #[rstest]
    #[case::negative_min(Some("-1"), Some("3"), &["min-size", "\"-1\"", "negative"])]
    #[case::negative_max(Some("0"), Some("-3"), &["max-size", "\"-3\"", "negative"])]
    #[case::unparsable_min(Some("one"), Some("3"), &["min-size", "\"one\"", "base-10"])]
    #[case::unparsable_max(Some("1"), Some("3.0"), &["max-size", "\"3.0\"", "base-10"])]
    #[case::empty(Some(""), Some("3"), &["min-size", "\"\"", "base-10"])]
    #[case::space(Some(" 1"), Some("3"), &["min-size", "\" 1\"", "no space"])]
    #[case::hexadecimal(Some("0x1"), Some("3"), &["min-size", "base-10"])]
    #[case::beyond_i32(Some("1"), Some("2147483648"), &["max-size", "between"])]
    #[case::far_beyond(Some("1"), Some("99999999999999999999999999"), &["max-size", "between"])]
    #[case::max_below_min(Some("4"), Some("3"), &["max-size", "\"3\"", "min-size (4)", "raise"])]
    #[case::min_without_max(Some("4"), None, &["max-size is missing", "min-size (4)"])]
    fn wrong_bounds_name_key_value_and_rule(
        #[case] min: Option<&str>,
        #[case] max: Option<&str>,
        #[case] parts: &[&str],
    ) {
        let problem = read(min, max).unwrap_err();
        assert_eq!(problem.kind, ProblemKind::Bounds);
        for part in parts {
            assert!(problem.message.contains(part), "{part:?} isn't in {problem}");
        }
    }

    #[rstest]
    #[case::min("cluster.x-k8s.io", "min-sise", true)]
    #[case::max("cluster.x-k8s.io", "maxsize", true)]
    #[case::in_upper_case("cluster.x-k8s.io", "Min-size", true)]
    #[case::nothing("cluster.x-k8s.io", "", true)]
    #[case::in_another_api_group("example.com", "min-sise", false)]
    #[case::a_known_one("cluster.x-k8s.io", "min-size", false)]
    #[case::the_other_known_one("cluster.x-k8s.io", "max-size", false)]
    fn an_unknown_ending_is_named(#[case] group: &str, #[case] ending: &str, #[case] is_named: bool) {
        let key = format!("{group}/cluster-api-autoscaler-node-group-{ending}");
        let annotations = BTreeMap::from([(ArcStr::from(key.as_str()), ArcStr::from("2"))]);
        let problems = unknown(&Keys::default(), &annotations);
        let expected = format!("annotation {key} is \"2\": no such size annotation is known; known are min-size, ");
        let named = problems.iter().map(|problem| (problem.kind, problem.message.starts_with(&expected)));
        assert_eq!(named.collect::<Vec<_>>(), vec![(ProblemKind::Bounds, true); usize::from(is_named)]);
    }

    #[test]
    fn the_keys_follow_the_api_group() {
        let annotations = [("example.com/cluster-api-autoscaler-node-group-max-size", "2")];
        let annotations = annotations.map(|(key, value)| (ArcStr::from(key), ArcStr::from(value))).into();
        assert_eq!(bounds(&Keys::new("example.com"), &annotations), Ok(Some(Bounds { min: 0, max: 2 })));
        assert_eq!(bounds(&Keys::default(), &annotations), Ok(None));
    }
}
