//! Whether a MachineDeployment is rolling out: scaling down then may remove another Machine than the annotated one
//! (kubernetes/autoscaler#8494, #8531).

use crate::capi::ScalableResource;

/// Whether a MachineSet that isn't of the highest revision has replicas, asked for or counted. To be called with the
/// MachineSets of one MachineDeployment. One without a revision is older than all that have one; several of the highest
/// revision are one rollout's end, not a rollout.
pub fn is_rolling_out<'a>(machine_sets: impl IntoIterator<Item = &'a ScalableResource>) -> bool {
    let mut highest = None;
    let mut highest_has_replicas = false;
    for set in machine_sets {
        let has_replicas = set.replicas.unwrap_or_default() > 0 || set.status_replicas > 0;
        if highest.is_none_or(|highest| set.revision > highest) {
            if highest_has_replicas {
                return true;
            }
            highest = Some(set.revision);
            highest_has_replicas = has_replicas;
        } else if has_replicas {
            if highest != Some(set.revision) {
                return true;
            }
            highest_has_replicas = true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::nodegroup::testing::machine_set;

    /// Revision, spec.replicas, status.replicas.
    type Set = (Option<i64>, Option<i32>, i32);

    #[rstest]
    #[case::no_machine_set(&[], false)]
    #[case::one(&[(Some(1), Some(3), 3)], false)]
    #[case::an_old_one_is_empty(&[(Some(1), Some(0), 0), (Some(2), Some(3), 3)], false)]
    #[case::an_old_one_has_spec_replicas(&[(Some(1), Some(1), 0), (Some(2), Some(3), 3)], true)]
    #[case::an_old_one_has_status_replicas(&[(Some(1), Some(0), 1), (Some(2), Some(3), 3)], true)]
    #[case::the_new_one_is_empty_yet(&[(Some(1), Some(3), 3), (Some(2), Some(0), 0)], true)]
    #[case::revisions_are_numbers(&[(Some(10), Some(3), 3), (Some(9), Some(0), 0)], false)]
    #[case::the_order_does_not_matter(&[(Some(2), Some(3), 3), (Some(1), Some(1), 1)], true)]
    #[case::the_middle_one_counts(&[(Some(2), Some(1), 1), (Some(1), Some(0), 0), (Some(3), Some(3), 3)], true)]
    #[case::without_a_revision_it_is_the_oldest(&[(None, Some(1), 1), (Some(1), Some(3), 3)], true)]
    #[case::no_revision_at_all(&[(None, Some(1), 1)], false)]
    #[case::the_highest_revision_twice(&[(Some(2), Some(1), 1), (Some(2), Some(1), 1)], false)]
    #[case::absent_replicas_are_none(&[(Some(1), None, 0), (Some(2), Some(3), 3)], false)]
    fn a_machine_set_below_the_highest_revision_with_replicas(#[case] sets: &[Set], #[case] expected: bool) {
        let sets: Vec<_> = sets
            .iter()
            .map(|(revision, replicas, status_replicas)| {
                let mut set = machine_set("workers-1");
                set.revision = *revision;
                set.replicas = *replicas;
                set.status_replicas = *status_replicas;
                set
            })
            .collect();
        assert_eq!(is_rolling_out(&sets), expected);
        assert_eq!(is_rolling_out(sets.iter().rev()), expected);
    }
}
