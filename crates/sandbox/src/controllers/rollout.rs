//! The sizes of a MachineDeployment's MachineSets, as numbers: the steps towards a size, and from one template to
//! another within maxSurge and maxUnavailable.

use serde_json::Value;

use super::object::Object;

/// The strategy by which a MachineDeployment replaces its Machines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Strategy {
    /// Gradually, within bounds.
    RollingUpdate {
        /// The number of Machines that may exist above the size.
        surge: i64,
        /// The number of Machines of the size that may be unavailable.
        unavailable: i64,
    },
    /// When somebody deletes an old Machine.
    OnDelete,
}

impl Strategy {
    /// Returns the strategy of a MachineDeployment of either contract version.
    pub(super) fn of(deployment: &Value, desired: i64) -> Self {
        let strategy = ["/spec/rollout/strategy", "/spec/strategy"].into_iter().find_map(|at| deployment.pointer(at));
        let strategy = strategy.unwrap_or(&Value::Null);
        if strategy.text("/type") == Some("OnDelete") {
            return Self::OnDelete;
        }
        let bounds = &strategy["rollingUpdate"];
        let surge = share(&bounds["maxSurge"], desired, true).unwrap_or(1);
        let unavailable = share(&bounds["maxUnavailable"], desired, false).unwrap_or(0);
        // With both at 0 there would be no progress.
        Self::RollingUpdate { surge, unavailable: if surge == 0 { unavailable.max(1) } else { unavailable } }
    }

    /// Returns the maximum number of Machines.
    pub(super) fn most(self, desired: i64) -> i64 {
        match self {
            Self::RollingUpdate { surge, .. } => desired + surge,
            Self::OnDelete => desired,
        }
    }
}

/// Parses a number, or a percentage of `of`, which is rounded up or down.
fn share(value: &Value, of: i64, up: bool) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number.max(0));
    }
    let percent: i64 = value.as_str()?.strip_suffix('%')?.parse().ok()?;
    let hundredths = (of * percent.max(0)).max(0);
    Some(if up { (hundredths + 99) / 100 } else { hundredths / 100 })
}

/// The size of a MachineSet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Size {
    /// The `spec.replicas`.
    pub(super) wanted: i64,
    /// The number of its Machines, including those being deleted.
    pub(super) actual: i64,
    /// The number of its available Machines.
    pub(super) available: i64,
}

/// Returns the new `spec.replicas` of the newest MachineSet and of the older ones, oldest first, towards `desired`.
pub(super) fn step(desired: i64, strategy: Strategy, newest: Size, older: &[Size]) -> (i64, Vec<i64>) {
    let all = || older.iter().chain([&newest]);
    match strategy {
        Strategy::RollingUpdate { surge, unavailable } => {
            let headroom = desired + surge - all().map(|size| size.wanted.max(size.actual)).sum::<i64>();
            let grown = newest.wanted + headroom.min(desired - newest.wanted).max(0);
            let available: i64 = all().map(|size| size.available.min(size.wanted)).sum();
            let wanted: i64 = all().map(|size| size.wanted).sum();
            let coming = (newest.wanted - newest.available).max(0);
            let least = desired - unavailable;
            (grown.min(desired), shrink(older, wanted - least - coming, available - least))
        }
        Strategy::OnDelete => {
            let existing: i64 = all().map(|size| size.wanted.max(size.actual)).sum();
            let replicas = desired.min(newest.wanted + (desired - existing).max(0));
            let mut surplus = older.iter().map(|size| size.wanted).sum::<i64>() + replicas - desired;
            // The replica of a Machine that is gone isn't filled again, whatever the size is.
            let left = older.iter().map(|size| size.wanted.min(size.actual)).collect::<Vec<_>>();
            surplus -= older.iter().zip(&left).map(|(size, left)| size.wanted - left).sum::<i64>();
            let take = |wanted: i64| {
                let less = wanted.min(surplus.max(0));
                surplus -= less;
                wanted - less
            };
            (replicas, left.into_iter().map(take).collect())
        }
    }
}

/// Returns the sizes of older sets shrunk by at most `most` Machines altogether: unavailable ones first, and at most
/// `most_available` of the available ones.
fn shrink(older: &[Size], most: i64, most_available: i64) -> Vec<i64> {
    let mut most = most.max(0);
    let mut sizes: Vec<i64> = older.iter().map(|size| size.wanted).collect();
    for (wanted, size) in sizes.iter_mut().zip(older) {
        let idle = (size.wanted - size.available).max(0).min(most);
        *wanted -= idle;
        most -= idle;
    }
    let mut most = most.min(most_available.max(0));
    for wanted in &mut sizes {
        let less = (*wanted).min(most);
        *wanted -= less;
        most -= less;
    }
    sizes
}

/// Returns the sizes while rollouts are paused: the difference goes to the newest set that has Machines.
pub(super) fn scale_only(desired: i64, sizes: &[Size]) -> Vec<i64> {
    let mut wanted: Vec<i64> = sizes.iter().map(|size| size.wanted).collect();
    let mut change = desired - wanted.iter().sum::<i64>();
    let last = sizes.iter().rposition(|size| size.wanted > 0).or(sizes.len().checked_sub(1));
    if change > 0
        && let Some(last) = last
    {
        wanted[last] += change;
    }
    for wanted in wanted.iter_mut().rev() {
        let less = (*wanted).min((-change).max(0));
        *wanted -= less;
        change += less;
    }
    wanted
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const fn full(wanted: i64) -> Size {
        Size { wanted, actual: wanted, available: wanted }
    }

    const fn size(wanted: i64, actual: i64, available: i64) -> Size {
        Size { wanted, actual, available }
    }

    #[rstest]
    #[case::grows_at_once(5, 1, 0, full(2), &[], 5, &[])]
    #[case::shrinks_at_once(1, 1, 0, full(2), &[], 1, &[])]
    #[case::one_more_first(3, 1, 0, full(0), &[full(3)], 1, &[3])]
    #[case::waits_for_it(3, 1, 0, size(1, 1, 0), &[full(3)], 1, &[3])]
    #[case::then_one_less(3, 1, 0, full(1), &[full(3)], 1, &[2])]
    #[case::waits_until_it_is_gone(3, 1, 0, full(1), &[size(2, 3, 2)], 1, &[2])]
    #[case::then_the_next(3, 1, 0, full(1), &[full(2)], 2, &[2])]
    #[case::the_end(3, 1, 0, full(3), &[full(1)], 3, &[0])]
    #[case::without_surge_one_less_first(3, 0, 1, full(0), &[full(3)], 0, &[2])]
    #[case::then_one_more(3, 0, 1, full(0), &[full(2)], 1, &[2])]
    #[case::waits_without_surge(3, 0, 1, size(1, 1, 0), &[full(2)], 1, &[2])]
    #[case::idle_ones_go_first(3, 1, 1, full(1), &[full(2), size(1, 1, 0)], 1, &[1, 0])]
    #[case::to_zero(0, 1, 0, full(1), &[full(3)], 0, &[0])]
    fn a_rolling_update_keeps_its_bounds(
        #[case] desired: i64,
        #[case] surge: i64,
        #[case] unavailable: i64,
        #[case] newest: Size,
        #[case] older: &[Size],
        #[case] expected: i64,
        #[case] expected_older: &[i64],
    ) {
        let sizes = step(desired, Strategy::RollingUpdate { surge, unavailable }, newest, older);
        assert_eq!(sizes, (expected, expected_older.to_vec()));
    }

    #[rstest]
    #[case::nothing_goes_by_itself(3, full(0), &[full(3)], 0, &[3])]
    #[case::a_machine_counts_until_it_is_gone(3, full(0), &[size(3, 3, 2)], 0, &[3])]
    #[case::a_machine_that_is_gone_is_not_replaced_in_its_set(3, full(0), &[size(3, 2, 2)], 0, &[2])]
    #[case::but_in_the_newest(3, full(0), &[full(2)], 1, &[2])]
    #[case::a_smaller_size_takes_from_the_oldest(3, full(2), &[full(1), full(1)], 2, &[0, 1])]
    #[case::then_from_the_next(2, full(1), &[full(1), full(2)], 1, &[0, 1])]
    #[case::a_machine_that_is_gone_meets_the_smaller_size(3, full(1), &[size(3, 2, 2)], 1, &[2])]
    #[case::the_newest_never_exceeds_the_size(1, full(2), &[full(1)], 1, &[0])]
    #[case::a_larger_size_is_for_the_newest(5, full(1), &[full(2)], 3, &[2])]
    fn on_delete_only_older_sets_shrink(
        #[case] desired: i64,
        #[case] newest: Size,
        #[case] older: &[Size],
        #[case] expected: i64,
        #[case] expected_older: &[i64],
    ) {
        assert_eq!(step(desired, Strategy::OnDelete, newest, older), (expected, expected_older.to_vec()));
    }

    #[rstest]
    #[case::default(json!({}), 4, 1, 0)]
    #[case::numbers(json!({ "rollingUpdate": { "maxSurge": 2, "maxUnavailable": 1 } }), 4, 2, 1)]
    #[case::percent(json!({ "rollingUpdate": { "maxSurge": "30%", "maxUnavailable": "30%" } }), 4, 2, 1)]
    #[case::never_both_zero(json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": "10%" } }), 4, 0, 1)]
    fn bounds_are_read(#[case] strategy: Value, #[case] of: i64, #[case] surge: i64, #[case] unavailable: i64) {
        let expected = Strategy::RollingUpdate { surge, unavailable };
        assert_eq!(Strategy::of(&json!({ "spec": { "rollout": { "strategy": strategy } } }), of), expected);
        assert_eq!(Strategy::of(&json!({ "spec": { "strategy": strategy } }), of), expected);
    }

    #[test]
    fn a_paused_rollout_still_scales() {
        assert_eq!(scale_only(5, &[full(1), full(2), full(0)]), [1, 4, 0]);
        assert_eq!(scale_only(1, &[full(1), full(2)]), [1, 0]);
        assert_eq!(scale_only(0, &[full(1), full(2)]), [0, 0]);
    }
}
