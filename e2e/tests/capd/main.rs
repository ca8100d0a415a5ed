//! The chart and an autoscaler in a management cluster, and real Nodes that come and go: containers of Cluster API's
//! development provider (CAPD). Everything here needs root, Docker and a network, and is listed as ignored unless the
//! environment variable `E2E_DOCKER` is set.

mod changes;
mod learned;
mod load;
mod scenarios;

use std::{path::Path, process::ExitCode};

use e2e::{machines, scenarios};

fn main() -> ExitCode {
    let scenarios = scenarios![machines::Body:
        changes::a_group_grows_from_two_to_three_and_shrinks_to_two,
        learned::a_template_promises_what_the_kubelet_reports,
        changes::a_node_whose_container_is_killed_is_replaced,
        scenarios::those_for_existing_clusters_pass,
    ];
    machines::run(&scenarios, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("capd"))
}
