//! The program with running controllers: Cluster API's own on real API servers, and the sandbox's.
//!
//! Every scenario has a namespace, a Cluster and a user of its own.

mod backoff;
mod deletes;
mod frozen;
mod idle;
mod learned;
mod pods;
mod remembered;
mod rollouts;
mod sizes;
mod templates;
mod topologies;
mod versions;

use std::{path::Path, process::ExitCode};

use e2e::{
    controllers::suite::{self, Body, Runs},
    scenarios,
};

fn main() -> ExitCode {
    let everywhere = scenarios![Body:
        sizes::a_deployment_grows_from_zero_by_annotations_and_shrinks_to_zero,
        sizes::a_bare_machine_set_grows_from_zero_and_shrinks_to_zero,
        sizes::a_machine_pool_grows_and_shrinks_by_number,
        deletes::parallel_deletes_take_exactly_the_named_machines,
        deletes::a_bare_machine_set_loses_exactly_the_named_machines,
        deletes::a_named_machine_goes_while_another_is_held_in_deletion,
        deletes::a_machine_that_never_joins_is_replaced_at_the_minimum,
        sizes::a_paused_cluster_has_no_groups_until_it_goes_on,
        sizes::a_deployment_whose_rollouts_are_paused_still_grows,
        rollouts::a_delete_in_the_middle_of_a_rollout_is_refused_and_takes_nothing,
        rollouts::with_on_delete_a_smaller_size_takes_machines_of_the_oldest_machine_set,
        templates::the_node_that_comes_has_the_labels_and_taints_that_were_promised,
        versions::both_versions_of_the_contract_lead_to_the_same_answers,
    ];
    let real = scenarios![Body:
        deletes::a_machine_pool_with_machines_loses_exactly_the_named_ones,
        topologies::a_group_of_a_topology_is_scaled_where_the_topology_sets_no_replicas,
    ];
    let scaled_as_each = scenarios![Body:
        pods::annotations_alone_bring_a_group_from_zero_and_back,
        idle::a_loop_with_nothing_to_do_asks_no_more_than_is_known,
    ];
    let scaled = scenarios![Body:
        // First, since it waits longest.
        backoff::a_group_whose_machines_never_join_is_left_for_another,
        frozen::a_machine_that_hangs_in_deletion_stops_no_other_group,
        frozen::a_machine_without_capacity_at_the_minimum_stops_no_other_group,
        pods::pods_bring_nodes_of_the_group_that_fits_and_idle_nodes_go,
        pods::the_cheaper_group_is_taken,
        pods::a_pod_with_a_zone_takes_the_group_that_is_all_there,
        learned::a_pod_that_needs_what_nodes_had_grows_a_group_from_zero,
        remembered::what_is_remembered_grows_a_group_from_zero_after_restarts,
        learned::a_group_with_gpus_grows_from_zero_and_shrinks_to_zero,
        learned::a_node_whose_id_its_machine_writes_in_another_form_stays,
        idle::idle_nodes_go_at_once_and_busy_ones_stay,
        idle::the_minimum_and_the_groups_own_times_keep_idle_nodes,
        idle::nothing_goes_while_a_rollout_goes_on,
        idle::the_taints_of_an_interrupted_scale_down_go_at_the_start,
        backoff::a_group_without_capacity_is_left_for_another,
        backoff::a_host_that_comes_late_is_waited_for,
    ];
    let in_memory = scenarios![Body:
        sizes::a_deployment_grows_from_zero_by_annotations_and_shrinks_to_zero,
        sizes::a_bare_machine_set_grows_from_zero_and_shrinks_to_zero,
        deletes::parallel_deletes_take_exactly_the_named_machines,
        deletes::a_bare_machine_set_loses_exactly_the_named_machines,
        deletes::a_named_machine_goes_while_another_is_held_in_deletion,
        sizes::a_paused_cluster_has_no_groups_until_it_goes_on,
        sizes::a_deployment_whose_rollouts_are_paused_still_grows,
    ];
    // The scenarios that real machines, real kubelets and an installed Cluster Autoscaler can run.
    let existing = scenarios![Body:
        pods::pods_bring_nodes_of_the_group_that_fits_and_idle_nodes_go,
        pods::annotations_alone_bring_a_group_from_zero_and_back,
        idle::idle_nodes_go_at_once_and_busy_ones_stay,
        idle::nothing_goes_while_a_rollout_goes_on,
        backoff::a_group_whose_machines_never_join_is_left_for_another,
        sizes::a_deployment_grows_from_zero_by_annotations_and_shrinks_to_zero,
        deletes::parallel_deletes_take_exactly_the_named_machines,
        deletes::a_named_machine_goes_while_another_is_held_in_deletion,
    ];
    let plays = [
        (Runs::ScaledAsEach, scaled_as_each.as_slice()),
        (Runs::Scaled, &scaled),
        (Runs::InMemory, &in_memory),
        (Runs::Existing, &existing),
        (Runs::Real, &real),
        (Runs::Everywhere, &everywhere),
    ];
    suite::run(&plays, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("controllers"))
}
