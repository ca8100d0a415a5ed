//! Reading of manifests from files. Interpreting them is up to the API.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize as _;
use serde_json::Value;

use crate::api::flatten;

/// The reason why manifests can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A file or folder can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A folder has no manifests.
    #[error("{} has no manifests: files whose names end in .yaml or .yml are looked for", .0.display())]
    Empty(PathBuf),
    /// A file isn't YAML.
    #[error("{} is no YAML", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        source: serde_yaml::Error,
    },
}

/// Reads all objects of a YAML file, or of the YAML files in a folder in the order of their names. The items of lists
/// are separate objects.
pub fn read_manifests(path: &Path) -> Result<Vec<Value>, ManifestError> {
    let read = |source| ManifestError::Read { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(read)?.is_dir() {
        return read_file(path);
    }
    let entries = fs::read_dir(path).map_err(read)?.collect::<io::Result<Vec<_>>>().map_err(read)?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).filter(|path| is_yaml(path)).collect();
    files.sort();
    if files.is_empty() {
        return Err(ManifestError::Empty(path.to_owned()));
    }
    let mut objects = Vec::new();
    for file in files {
        objects.extend(read_file(&file)?);
    }
    Ok(objects)
}

fn is_yaml(path: &Path) -> bool {
    path.is_file() && path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn read_file(path: &Path) -> Result<Vec<Value>, ManifestError> {
    let text = fs::read_to_string(path).map_err(|source| ManifestError::Read { path: path.to_owned(), source })?;
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let document =
            Value::deserialize(document).map_err(|source| ManifestError::Yaml { path: path.to_owned(), source })?;
        flatten(document, &mut objects);
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::object::Object;

    #[test]
    fn a_folder_gives_the_objects_of_its_yaml_files_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("b.yml", "kind: B\nmetadata: {name: b}\n---\n---\nkind: List\nitems: [{kind: C, metadata: {name: c}}]\n");
        write("a.yaml", "kind: A\nmetadata: {name: a}\n");
        write("README.md", "not: [yaml");
        let objects = read_manifests(folder.path()).unwrap();
        assert_eq!(objects.iter().map(Object::name).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn an_invalid_manifest_is_an_error_that_names_the_file_and_an_empty_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = read_manifests(folder.path()).unwrap_err().to_string();
        assert!(error.contains("has no manifests"), "{error}");
        fs::write(folder.path().join("a.yaml"), "a: [").unwrap();
        let error = read_manifests(folder.path()).unwrap_err().to_string();
        assert!(error.contains("a.yaml is no YAML"), "{error}");
    }
}
