//! Makes the images of clusters with real Nodes, and prints their names: `cargo run -p e2e --bin images`. It needs
//! root, Docker and a network.

use anyhow::Result;
use e2e::images::Images;

#[tokio::main]
async fn main() -> Result<()> {
    let images = Images::make().await?;
    println!("node     {}", images.node);
    println!("project  {} {}", images.project.name, images.project.digest);
    Ok(())
}
