//! End-to-end tests: the built program on a real API server, called as Cluster Autoscaler calls it.
//!
//! Every scenario has a namespace of its own. Those listed as `both` run for each version of Cluster API's contract, those
//! of `machine_api` where OpenShift's kinds are served instead. Those listed as `own` also have an API server of their
//! own, since they stop it.

mod deletes;
mod devices;
mod faults;
mod fleets;
mod instances;
mod machine_api;
mod moving;
mod process;
mod refusals;
mod rotation;
mod sizes;
mod templates;

use std::process::ExitCode;

use e2e::{
    objects::Contract,
    scenarios,
    suite::{self, Play, Run},
};

fn main() -> ExitCode {
    let both = scenarios![Run:
        instances::every_kind_of_group_is_listed_with_its_bounds,
        instances::a_real_scaling_deployment_shows_running_creating_and_deleting,
        instances::a_real_rollout_shows_the_machines_of_both_machine_sets,
        sizes::an_increase_is_in_scale_and_answered_at_once,
        sizes::a_group_grows_from_zero,
        deletes::the_machines_named_are_deleted_and_the_size_is_lowered,
    ];
    let shared = scenarios![Run:
        templates::status_capacity_is_found_whatever_its_plural,
        templates::a_missing_kind_a_forbidden_kind_and_a_missing_template_hold_up_nothing,
        templates::a_kind_installed_later_is_found,
        devices::slices_that_are_made_are_decoded_and_valid,
        sizes::a_size_whose_answer_is_lost_is_known_to_be_written,
        sizes::a_size_set_by_someone_else_is_not_written_over,
        sizes::a_manager_that_keeps_putting_a_size_back_is_named,
        deletes::fifty_deletes_at_once,
        deletes::a_machine_without_a_node_is_deleted_by_its_placeholder,
        deletes::one_that_joined_meanwhile_stays,
        deletes::a_machine_of_a_pool_is_marked_and_the_pool_made_smaller,
        deletes::nodes_named_to_both_copies_at_once_are_counted_once,
        refusals::a_size_that_a_webhook_refuses_leaves_nothing_behind,
        refusals::a_size_that_a_policy_forbids_leaves_nothing_behind,
        refusals::a_webhook_that_does_not_answer_is_waited_for,
        refusals::a_refused_delete_holds_the_options,
        process::reads_make_no_api_call,
        process::the_version_of_the_contract_can_be_fixed,
        process::sizes_written_and_refused_are_reported_by_events,
        process::one_cluster_is_served_with_the_kubeconfig_from_its_secret,
        rotation::a_revoked_token_is_followed_by_the_next_one_in_the_secret,
        fleets::each_autoscaler_has_its_own_cluster_until_it_opts_out,
        fleets::a_replica_that_is_killed_in_mid_loop_loses_and_doubles_nothing,
        moving::a_cluster_moves_over_and_back_with_deletions_under_way,
    ];
    let own = scenarios![Run:
        faults::an_api_server_that_is_down_at_start_is_waited_for,
        faults::an_api_server_that_restarts_is_followed,
    ];
    let machine_api = scenarios![Run:
        machine_api::machine_sets_are_node_groups_and_nodes_lead_to_them,
        machine_api::the_machine_named_is_marked_and_the_size_lowered,
        machine_api::check_says_what_is_missing,
    ];
    let plays: Vec<Play> = [
        (false, both.as_slice(), Contract::ALL.as_slice()),
        (false, shared.as_slice(), &[Contract::V1Beta2]),
        (true, own.as_slice(), &[Contract::V1Beta2]),
        (false, machine_api.as_slice(), &[Contract::MachineApi]),
    ]
    .into_iter()
    .flat_map(|(own_api_server, listed, contracts)| {
        listed.iter().map(move |&scenario| Play { scenario, own_api_server, contracts })
    })
    .collect();
    suite::run(&plays)
}
