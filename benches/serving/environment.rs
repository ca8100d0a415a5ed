//! The environment of the program in its image.

const DOCKERFILE: &str = include_str!("../../Dockerfile");

/// Returns the variables that the image sets.
pub(crate) fn of_image() -> impl Iterator<Item = (&'static str, &'static str)> {
    let last_stage = DOCKERFILE.rsplit("\nFROM ").next().unwrap_or_default();
    let variables: Vec<_> = last_stage.lines().filter_map(|line| line.strip_prefix("ENV ")?.split_once('=')).collect();
    assert!(!variables.is_empty(), "the image sets variables");
    variables.into_iter()
}
