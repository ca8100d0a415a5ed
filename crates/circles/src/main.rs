//! Prints the circles (dependency cycles) between the files of a module, one use per line. Files of a module must not
//! use each other, except a parent and its children. A circle between two modules counts as one between their files.

mod packages;
mod source;
mod uses;

use anyhow::Result;

fn main() -> Result<()> {
    for root in packages::crates() {
        for circle in uses::circles(&source::read_crate(&root)?) {
            println!("{circle}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
