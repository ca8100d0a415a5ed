//! Many groups at once, in a binary of their own: they would starve other scenarios' controllers.

mod scenario;

use std::{path::Path, process::ExitCode};

use e2e::{controllers::suite, plays};

fn main() -> ExitCode {
    let scenarios = plays![Everywhere: scenario::two_hundred_groups_grow_and_shrink_at_once];
    suite::run(&scenarios, &Path::new(env!("CARGO_TARGET_TMPDIR")).join("many"))
}
