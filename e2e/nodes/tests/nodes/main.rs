//! The project's image and chart on a cluster whose kubelet is real. Everything here needs root, Docker and a network,
//! and is listed as ignored unless the environment variable `E2E_DOCKER` is set.

mod calls;
mod image;
mod in_pod;
mod lifecycle;
mod limits;
mod metrics;
mod node;
mod pod;
mod pods;
mod policy;
mod release;
mod token;
mod topologies;

use std::{path::Path, process::ExitCode};

use e2e::{docker_scenarios, nodes};

fn main() -> ExitCode {
    let scenarios = docker_scenarios![nodes::Body:
        image::it_is_small_and_holds_the_program_for_a_user_without_rights,
        image::its_list_of_crates_is_that_of_the_program,
        image::it_runs,
        image::two_builds_from_nothing_have_one_digest,
        lifecycle::a_release_is_installed_upgraded_rolled_back_and_uninstalled,
        lifecycle::a_broken_upgrade_leaves_the_old_pods_serving,
        pods::they_run_under_restricted_pod_security_without_rights,
        pods::probes_and_metrics_answer_the_kubelet,
        pods::a_disruption_budget_lets_one_of_two_go,
        pods::a_sidecar_serves_on_a_unix_socket,
        calls::certificates_are_renewed_while_an_autoscaler_calls,
        calls::a_pod_killed_in_mid_delete_is_followed_by_the_other,
        in_pod::a_driver_in_a_pod_scales_through_service_and_dns_when_pods_go,
        calls::an_upgrade_fails_no_call,
        node::a_kubelet_writes_its_node_as_it_was_recorded,
        topologies::each_example_runs,
        policy::an_autoscaler_alone_reaches_grpc_and_a_pod_only_what_it_needs,
        metrics::prometheus_evaluates_every_alert_and_every_query_of_the_dashboard,
        release::image_and_chart_are_signed_before_they_have_a_tag_and_installed_by_digest,
        limits::a_thousand_groups_fit_the_default_limits,
        token::the_program_goes_on_with_the_token_that_the_kubelet_has_renewed,
    ];
    nodes::run(&scenarios, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("nodes"))
}
