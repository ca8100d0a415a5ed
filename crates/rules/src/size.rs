//! The bounds of size changes. All sizes are the `spec.replicas` of a group.

use std::{collections::BTreeMap, num::IntErrorKind};

use arcstr::ArcStr;
use thiserror::Error;

use crate::{Problem, ProblemKind, capi::Keys};

/// The min and max size of a group; `0 <= min <= max` and `max > 0`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Bounds {
    /// The size below which Cluster Autoscaler doesn't go.
    pub min: i32,
    /// The size above which Cluster Autoscaler doesn't go.
    pub max: i32,
}

/// The reason why a size change is refused.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum SizeError {
    /// The delta is invalid: INVALID_ARGUMENT.
    #[error("delta is {delta}: it must be {rule}")]
    Delta {
        /// The delta.
        delta: i32,
        /// The values that are permitted.
        rule: &'static str,
    },
    /// The size would be above the maximum: FAILED_PRECONDITION.
    #[error("size {current} plus {delta} is {size}, which is above the maximum of {max}")]
    AboveMax {
        /// The size now.
        current: i32,
        /// The requested number.
        delta: i32,
        /// The requested size.
        size: i64,
        /// The max size.
        max: i32,
    },
    /// The size would be below the minimum: FAILED_PRECONDITION.
    #[error("size {current} minus {count} is {size}, which is below the minimum of {min}")]
    BelowMin {
        /// The size now.
        current: i32,
        /// The requested number.
        count: usize,
        /// The requested size.
        size: i64,
        /// The min size.
        min: i32,
    },
}

/// Returns the size after IncreaseSize.
///
/// # Errors
/// Fails if `delta` isn't positive, or the size would be above the maximum.
pub fn after_increase(current: i32, delta: i32, bounds: Bounds) -> Result<i32, SizeError> {
    if delta <= 0 {
        return Err(SizeError::Delta { delta, rule: "positive to increase a size" });
    }
    let size = i64::from(current) + i64::from(delta);
    i32::try_from(size).ok().filter(|size| *size <= bounds.max).ok_or(SizeError::AboveMax {
        current,
        delta,
        size,
        max: bounds.max,
    })
}

/// Returns the size after `count` instances are deleted. Deleting none changes nothing, whatever the bounds.
///
/// # Errors
/// Fails if the size would be below the minimum.
pub fn after_delete(current: i32, count: usize, bounds: Bounds) -> Result<i32, SizeError> {
    if count == 0 {
        return Ok(current);
    }
    let size = i64::from(current).saturating_sub(i64::try_from(count).unwrap_or(i64::MAX));
    i32::try_from(size).ok().filter(|size| *size >= bounds.min.max(0)).ok_or(SizeError::BelowMin {
        current,
        count,
        size,
        min: bounds.min,
    })
}

/// Returns the size after DecreaseTargetSize, which gives up replicas that have no Node yet but never an instance that
/// has one. It stops at `machines_with_node`, the number of Machines that have a Node and aren't being deleted, and at
/// the minimum; stopping there is a success (kubernetes/autoscaler#7928). It never raises the size, even if that is
/// already below the minimum.
///
/// # Errors
/// Fails if `delta` isn't negative.
pub fn after_decrease(current: i32, delta: i32, machines_with_node: i32, min: i32) -> Result<i32, SizeError> {
    check_decrease(delta)?;
    Ok(current.saturating_add(delta).max(machines_with_node).max(min).max(0).min(current))
}

/// Returns the size that is smaller by this number, but not below the minimum. It never raises the size.
pub fn lowered(current: i32, by: i32, min: i32) -> i32 {
    current.saturating_sub(by).max(min).max(0).min(current)
}

/// Refuses a delta that DecreaseTargetSize can't have, whatever the state of the group.
///
/// # Errors
/// Fails if `delta` isn't negative.
pub fn check_decrease(delta: i32) -> Result<(), SizeError> {
    if delta < 0 { Ok(()) } else { Err(SizeError::Delta { delta, rule: "negative to decrease a target size" }) }
}

// The min and max size of a node group, from its two annotations.

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
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::testing::{annotations, assert_names};

    const BOUNDS: Bounds = Bounds { min: 2, max: 5 };

    #[rstest]
    #[case::within(3, 1, Ok(4))]
    #[case::up_to_the_max(3, 2, Ok(5))]
    #[case::from_below_the_min(0, 1, Ok(1))]
    #[case::beyond_the_max(3, 3, Err("size 3 plus 3 is 6, which is above the maximum of 5"))]
    #[case::far_beyond(1, i32::MAX, Err("size 1 plus 2147483647 is 2147483648, which is above the maximum of 5"))]
    #[case::by_0(3, 0, Err("delta is 0: it must be positive to increase a size"))]
    #[case::by_less(3, -1, Err("delta is -1: it must be positive to increase a size"))]
    fn an_increase(#[case] current: i32, #[case] delta: i32, #[case] expected: Result<i32, &str>) {
        let size = after_increase(current, delta, BOUNDS).map_err(|error| error.to_string());
        assert_eq!(size, expected.map_err(str::to_owned));
    }

    #[rstest]
    #[case::within(5, 2, Ok(3))]
    #[case::down_to_the_min(5, 3, Ok(2))]
    #[case::from_above_the_max(9, 1, Ok(8))]
    #[case::none(1, 0, Ok(1))]
    #[case::below_the_min(5, 4, Err("size 5 minus 4 is 1, which is below the minimum of 2"))]
    #[case::at_the_min(2, 1, Err("size 2 minus 1 is 1, which is below the minimum of 2"))]
    fn a_delete(#[case] current: i32, #[case] count: usize, #[case] expected: Result<i32, &str>) {
        let size = after_delete(current, count, BOUNDS).map_err(|error| error.to_string());
        assert_eq!(size, expected.map_err(str::to_owned));
    }

    #[rstest]
    #[case::of_replicas_without_a_node(5, -2, 3, 0, Ok(3))]
    #[case::stops_at_machines_with_a_node(5, -4, 3, 0, Ok(3))]
    #[case::all_have_a_node(5, -2, 5, 0, Ok(5))]
    #[case::never_raises_the_size(3, -1, 4, 0, Ok(3))]
    #[case::never_below_0(1, -2, 0, 0, Ok(0))]
    #[case::stops_at_the_minimum(4, -3, 1, 2, Ok(2))]
    #[case::at_the_minimum(2, -1, 0, 2, Ok(2))]
    #[case::below_the_minimum_already(1, -1, 0, 2, Ok(1))]
    #[case::far(1, i32::MIN, 0, 0, Ok(0))]
    #[case::by_0(3, 0, 1, 0, Err("delta is 0: it must be negative to decrease a target size"))]
    #[case::by_more(3, 1, 1, 0, Err("delta is 1: it must be negative to decrease a target size"))]
    fn a_decrease(
        #[case] current: i32,
        #[case] delta: i32,
        #[case] with_node: i32,
        #[case] min: i32,
        #[case] expected: Result<i32, &str>,
    ) {
        let size = after_decrease(current, delta, with_node, min).map_err(|error| error.to_string());
        assert_eq!(size, expected.map_err(str::to_owned));
    }

    proptest! {
        #[test]
        fn sizes_keep_their_promises(
            current in 0..i32::MAX, delta in any::<i32>(), count in any::<usize>(), with_node in any::<i32>(),
            min in 0..100, max in 0..i32::MAX,
        ) {
            let bounds = Bounds { min, max };
            if let Ok(size) = after_increase(current, delta, bounds) {
                prop_assert!(size > current && size <= max);
            }
            if let Ok(size) = after_delete(current, count, bounds) {
                prop_assert!(size == current || (size < current && size >= min));
            }
            if let Ok(size) = after_decrease(current, delta, with_node, min) {
                prop_assert!((0..=current).contains(&size) && size >= with_node.max(min).min(current));
            }
        }
    }

    fn read(min: Option<&str>, max: Option<&str>) -> Result<Option<Bounds>, Problem> {
        let keys = Keys::default();
        let stated: Vec<_> = [("min-size", min), ("max-size", max)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect();
        let annotations = annotations(&keys.size_prefix, &stated);
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
        assert_names(&[read(min, max).unwrap_err()], ProblemKind::Bounds, parts);
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
        let annotations = annotations("example.com/cluster-api-autoscaler-node-group-", &[("max-size", "2")]);
        assert_eq!(bounds(&Keys::new("example.com"), &annotations), Ok(Some(Bounds { min: 0, max: 2 })));
        assert_eq!(bounds(&Keys::default(), &annotations), Ok(None));
    }
}
