//! End-to-end tests: the built program on a real API server, called as Cluster Autoscaler calls it.
//!
//! Every scenario runs once per version of Cluster API's contract, in a namespace of its own; those of `machine_api`
//! run once, where OpenShift's kinds are served instead. Those listed as `own` also have an API server of their own,
//! since they stop it.

mod behind;
mod copies;
mod deletes;
mod errors;
mod faults;
mod fleets;
mod groups;
mod instances;
mod joined;
mod learned;
mod machine_api;
mod measured;
mod membership;
mod moving;
mod nodes;
mod observed;
mod options;
mod placeholders;
mod program;
mod refusals;
mod replacements;
mod rotation;
mod scope;
mod sizes;
mod template_faults;
mod templates;
mod zones;

use std::process::ExitCode;

use e2e::{
    objects::Contract,
    scenarios,
    suite::{self, Run, Scenario},
};

fn main() -> ExitCode {
    let shared = scenarios![
        groups::every_kind_of_group_is_listed_with_its_bounds,
        groups::an_invalid_group_is_left_out_and_all_others_go_on,
        groups::a_group_without_machines_needs_a_way_to_scale_from_zero,
        groups::a_paused_group_is_no_group_and_its_nodes_have_none,
        groups::a_paused_cluster_has_no_groups,
        membership::a_group_made_invalid_answers_until_the_next_refresh,
        membership::a_deleted_group_answers_until_the_next_refresh,
        membership::a_new_group_is_named_by_no_answer_before_a_refresh,
        membership::a_node_that_is_asked_about_before_the_first_refresh_has_its_group,
        membership::a_caller_that_comes_in_mid_loop_meets_what_there_is,
        nodes::real_nodes_lead_to_their_group,
        nodes::made_up_nodes_lead_to_their_group,
        nodes::nodes_of_no_group_have_an_empty_answer,
        instances::a_real_scaling_deployment_shows_running_creating_and_deleting,
        instances::a_real_rollout_shows_the_machines_of_both_machine_sets,
        instances::failures_are_reported_with_their_class,
        instances::replicas_without_a_machine_have_placeholders,
        instances::a_machine_pool_shows_its_provider_ids,
        instances::an_instance_has_its_nodes_form_of_the_id,
        learned::what_all_nodes_of_a_group_have_is_promised_from_zero,
        learned::taints_that_nodes_lose_are_named_with_the_flag_that_they_need,
        options::annotations_override_the_defaults_that_were_sent,
        options::a_group_without_overrides_sends_no_options,
        options::zero_or_max_node_scaling_is_a_problem_and_is_not_sent,
        options::an_unsupported_rpc_answers_unimplemented_or_empty_and_cleanup_ends_nothing,
        scope::a_label_and_a_cluster_name_limit_the_groups,
        scope::several_specs_add_up_over_namespaces,
        scope::one_cluster_is_served_with_the_kubeconfig_from_its_secret,
        scope::a_kubeconfig_secret_that_comes_later_is_waited_for,
        scope::all_clusters_are_served_on_purpose,
        scope::without_a_scope_it_refuses_to_start,
        scope::a_wrong_scope_is_refused,
        templates::annotations_give_the_capacity,
        templates::status_capacity_is_found_whatever_its_plural,
        templates::annotations_win_over_status_capacity,
        templates::labels_and_taints_come_from_the_template_and_annotations,
        templates::a_real_group_has_the_capacity_of_its_real_template,
        templates::the_default_architecture_can_be_set,
        templates::a_changed_capacity_is_answered,
        templates::a_template_is_the_same_node_in_both_fields_field_by_field,
        templates::the_reservation_of_a_real_node_is_subtracted_from_all_templates_of_its_kind,
        zones::a_group_whose_nodes_are_in_several_zones_promises_none,
        zones::a_group_whose_nodes_differ_in_type_and_region_promises_neither,
        zones::failure_domains_that_are_no_zones_are_withdrawn,
        template_faults::a_missing_kind_a_forbidden_kind_and_a_missing_template_hold_up_nothing,
        template_faults::a_kind_installed_later_is_found,
        template_faults::an_unreadable_capacity_spoils_only_its_own_group,
        fleets::each_autoscaler_has_its_own_cluster_until_it_opts_out,
        fleets::a_replica_that_is_killed_in_mid_loop_loses_and_doubles_nothing,
        fleets::every_query_of_the_dashboard_about_a_fleet_has_series,
        moving::a_cluster_moves_over_and_back_with_deletions_under_way,
        moving::a_cluster_that_leaves_a_fleet_in_mid_deletion_loses_one_machine,
        rotation::a_revoked_token_is_followed_by_the_next_one_in_the_secret,
        rotation::a_secret_that_may_not_be_used_leaves_the_one_in_force,
        rotation::sizes_are_written_while_the_kubeconfig_file_is_exchanged,
        program::health_and_reflection_answer,
        program::pages_answer,
        program::the_version_of_the_contract_can_be_fixed,
        program::the_example_grants_what_it_is_run_with,
        program::missing_rights_are_named_until_they_are_given,
        program::sigterm_ends_it_in_time_with_success,
        program::sigterm_during_a_write_ends_it_after_the_write,
        program::reads_make_no_api_call,
    ];
    let own = scenarios![
        faults::an_api_server_that_is_down_at_start_is_waited_for,
        faults::an_api_server_that_restarts_is_followed,
        faults::stale_data_is_not_answered_for_ever,
    ];
    let by_hand = scenarios![measured::fifty_deletes_at_once];
    let commands = commands();
    let machine_api = scenarios![
        machine_api::machine_sets_are_node_groups_and_nodes_lead_to_them,
        machine_api::templates_come_from_annotations_and_what_nodes_get,
        machine_api::the_machine_named_is_marked_and_the_size_lowered,
        machine_api::sizes_go_up_from_zero,
        machine_api::failures_are_reported,
        machine_api::check_says_what_is_missing,
    ];
    let capi = Contract::ALL.as_slice();
    let scenarios: Vec<Scenario> = [
        (false, false, shared.as_slice(), capi),
        (false, false, commands.as_slice(), capi),
        (true, false, own.as_slice(), capi),
        (true, true, by_hand.as_slice(), capi),
        (false, false, machine_api.as_slice(), &[Contract::MachineApi]),
    ]
    .into_iter()
    .flat_map(|(own_api_server, by_hand, listed, contracts)| {
        listed.iter().map(move |&(name, run)| Scenario { name, own_api_server, by_hand, contracts, run })
    })
    .collect();
    suite::run(&scenarios)
}

/// Returns the scenarios of sizes and deletes.
fn commands() -> Vec<(&'static str, Run)> {
    scenarios![
        sizes::an_increase_is_in_scale_and_answered_at_once,
        sizes::a_group_grows_from_zero,
        sizes::a_size_whose_answer_is_lost_is_known_to_be_written,
        sizes::increases_add_up,
        sizes::a_wrong_increase_is_refused_and_changes_nothing,
        sizes::a_decrease_stops_at_the_machines_that_have_a_node,
        sizes::a_decrease_deletes_machines_that_have_no_node,
        sizes::a_decrease_stops_at_the_minimum,
        sizes::a_wrong_decrease_is_refused_and_changes_nothing,
        sizes::a_size_set_by_someone_else_is_answered,
        deletes::the_machines_named_are_deleted_and_the_size_is_lowered,
        deletes::parallel_deletes_lower_the_size_once_each,
        deletes::a_machine_that_is_going_already_is_not_counted_twice,
        deletes::below_the_minimum_nothing_is_deleted,
        deletes::a_node_of_another_group_spoils_the_whole_request,
        deletes::a_placeholder_lowers_the_size_and_deletes_nothing,
        deletes::a_machine_without_a_node_is_deleted_by_its_placeholder,
        deletes::a_machine_of_a_pool_is_marked_and_the_pool_made_smaller,
        behind::an_own_write_is_answered_before_the_watch_reports_it,
        behind::a_size_set_by_someone_else_is_not_written_over,
        behind::deletes_are_judged_by_what_was_written,
        joined::machines_whose_nodes_are_known_run,
        joined::a_decrease_takes_no_machine_whose_node_is_known,
        joined::a_machine_whose_node_is_known_is_not_deleted_as_one_that_never_joined,
        joined::a_decrease_reads_machines_that_the_watch_says_never_joined,
        joined::a_decrease_takes_nothing_where_all_have_joined_meanwhile,
        joined::a_delete_reads_a_machine_that_the_watch_says_never_joined,
        placeholders::a_size_whose_answer_is_lost_is_lowered_once,
        placeholders::a_size_whose_answer_is_lost_is_lowered_once_while_watches_are_behind,
        placeholders::a_size_that_someone_else_has_lowered_meanwhile_stays,
        placeholders::a_size_that_someone_else_has_lowered_in_part_is_lowered_by_the_rest,
        placeholders::a_placeholder_that_has_become_a_machine_is_refused,
        errors::failures_are_reported_where_their_delete_would_be_accepted,
        errors::failures_at_the_minimum_are_not_reported_without_replacement,
        errors::after_a_replacement_failures_at_the_minimum_are_not_reported,
        copies::a_copy_that_is_behind_adds_to_what_the_other_has_deleted,
        copies::nodes_named_to_both_copies_at_once_are_counted_once,
        copies::increases_by_both_copies_at_once_add_up,
        replacements::one_machine_is_replaced_at_the_minimum_and_reported,
        replacements::sizes_written_and_refused_are_reported_by_events,
        replacements::a_machine_that_is_another_by_now_is_not_replaced,
        observed::a_manager_that_keeps_putting_a_size_back_is_named,
        observed::machines_that_are_not_made_are_reported,
        refusals::a_size_that_a_webhook_refuses_leaves_nothing_behind,
        refusals::a_size_that_a_policy_finds_invalid_leaves_nothing_behind,
        refusals::a_size_that_a_policy_forbids_leaves_nothing_behind,
        refusals::a_webhook_that_does_not_answer_is_waited_for,
        refusals::a_refused_delete_holds_the_options,
    ]
    .to_vec()
}
