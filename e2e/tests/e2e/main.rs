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
mod refusals;
mod rotation;
mod sizes;

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
        instances::reads_make_no_api_call,
        faults::a_kind_installed_later_is_found_whatever_its_plural,
        devices::slices_that_are_made_are_decoded_and_valid,
        sizes::a_size_whose_answer_is_lost_is_known_to_be_written,
        sizes::a_size_set_by_someone_else_is_not_written_over,
        sizes::a_manager_that_keeps_putting_a_size_back_is_named,
        deletes::one_that_joined_meanwhile_stays,
        refusals::a_size_that_a_webhook_refuses_leaves_nothing_behind,
        refusals::a_size_that_a_policy_forbids_leaves_nothing_behind,
        refusals::a_webhook_that_does_not_answer_is_waited_for,
        rotation::a_revoked_token_is_followed_by_the_next_one_in_the_secret,
        fleets::each_autoscaler_has_its_own_cluster_until_it_opts_out,
    ];
    let own = scenarios![Run: faults::an_api_server_that_restarts_is_followed];
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
