//! The `forebay` command. All of it is in the library, which the Python package runs too.

fn main() {
    let text = |argument: std::ffi::OsString| argument.to_string_lossy().into_owned();
    std::process::exit(forebay_cli::run(std::env::args_os().map(text)));
}
