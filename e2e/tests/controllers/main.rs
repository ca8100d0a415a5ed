//! The program with controllers at work: Cluster API's own on real API servers, and the sandbox's.
//!
//! Every scenario has a namespace, a Cluster and a user to itself. Those listed as `RealAlone` have all the components to themselves as
//! well, since they disturb others.

mod sizes;

use std::{path::Path, process::ExitCode};

use e2e::{
    controllers::suite::{self, Scenario},
    plays,
};

fn main() -> ExitCode {
    let everywhere = plays![Everywhere:
        sizes::a_deployment_is_followed_from_zero_and_back,
    ];
    let scenarios: Vec<Scenario> = everywhere.into_iter().collect();
    suite::run(&scenarios, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("controllers"))
}
