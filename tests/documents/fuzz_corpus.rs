//! Runs the functions of the fuzz targets on the kept inputs of the fuzzers.

use std::{collections::BTreeSet, fs, path::PathBuf};

#[path = "../../crates/fuzz/src/lib.rs"]
#[allow(unreachable_pub, reason = "as a library it is reached by the fuzz targets")]
mod fuzz;

fn kept() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crates/fuzz/corpus-kept")
}

#[test]
fn every_kept_input_goes_through_its_target() {
    for (name, target) in fuzz::TARGETS {
        let inputs: Vec<_> = fs::read_dir(kept().join(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{name} has no inputs");
        for input in inputs {
            // The last line that the test prints names the input that fails.
            println!("{}", input.display());
            target(&fs::read(input).unwrap());
        }
    }
}

#[test]
fn every_folder_of_inputs_belongs_to_a_target_and_every_target_can_be_run() {
    let named: BTreeSet<_> = fuzz::TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let folders = fs::read_dir(kept()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(folders.collect::<BTreeSet<_>>(), named);
    let programs = fs::read_dir(kept().with_file_name("fuzz_targets")).unwrap();
    let programs = programs.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    assert_eq!(programs.collect::<BTreeSet<_>>(), named);
}
