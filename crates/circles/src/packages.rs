//! Finds the packages of the repository and the root files of their crates.

use std::path::{Path, PathBuf};

/// Returns the repository's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns all Rust files of the repository, except build outputs and hidden files.
pub(crate) fn files() -> Vec<PathBuf> {
    let entries = walkdir::WalkDir::new(root()).sort_by_file_name().into_iter();
    let entries = entries.filter_entry(|entry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0 || !(name.starts_with('.') || (entry.file_type().is_dir() && name == "target"))
    });
    let paths = entries.filter_map(|entry| Some(entry.ok()?.into_path()));
    // Generated code is included into another file.
    let is_source = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    paths.filter(|path| is_source(path) && !path.ends_with("src/generated.rs")).collect()
}

/// Returns the root files of crates: those of a package's library, programs, tests, benches, examples and fuzz targets,
/// and its build script.
pub(crate) fn crates() -> Vec<PathBuf> {
    files().into_iter().filter(|path| package(path).is_some_and(|package| is_crate(&package, path))).collect()
}

/// Returns the innermost package that contains a file.
fn package(file: &Path) -> Option<PathBuf> {
    file.ancestors().skip(1).find(|folder| folder.join("Cargo.toml").exists()).map(Path::to_owned)
}

fn is_crate(package: &Path, file: &Path) -> bool {
    let place: Vec<_> = file.strip_prefix(package).into_iter().flatten().filter_map(|part| part.to_str()).collect();
    match place.as_slice() {
        ["build.rs" | "main.rs"] | ["src", "lib.rs" | "main.rs"] => true,
        ["src", "bin", program @ ..] => matches!(program, [_] | [_, "main.rs"]),
        ["tests" | "benches" | "examples" | "fuzz_targets", program @ ..] => matches!(program, [_] | [_, "main.rs"]),
        _ => false,
    }
}
