//! The project's image and chart on a cluster whose kubelet is real. Everything here needs root, Docker and a network,
//! and is listed as ignored unless the environment variable `E2E_DOCKER` is set.

mod calls;
mod image;
mod limits;
mod node;
mod pod;
mod pods;
mod policy;
mod release;
mod token;

use std::{path::Path, process::ExitCode};

use e2e::{nodes, scenarios};

fn main() -> ExitCode {
    let scenarios = scenarios![nodes::Body:
        image::it_is_small_and_holds_the_program_for_a_user_without_rights,
        image::it_runs,
        image::two_builds_from_nothing_have_one_digest,
        pods::they_run_under_restricted_pod_security_without_rights,
        pods::a_sidecar_serves_on_a_unix_socket,
        calls::certificates_are_renewed_while_an_autoscaler_calls,
        calls::an_upgrade_fails_no_call,
        node::a_kubelet_writes_its_node_as_it_was_recorded,
        release::image_and_chart_are_signed_before_they_have_a_tag_and_installed_by_digest,
        limits::a_thousand_groups_fit_the_default_limits,
        token::the_program_goes_on_with_the_token_that_the_kubelet_has_renewed,
        // The last one, since its firewall stays on the Node.
        policy::an_autoscaler_alone_reaches_grpc_and_a_pod_only_what_it_needs,
    ];
    nodes::run(&scenarios, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("nodes"))
}
