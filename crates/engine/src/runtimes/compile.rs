//! What a compiled language needs in its two sandboxes: that of the compiler and that of the program.

use std::path::{Path, PathBuf};

use sandbox::{Layer, Limits, PlacedFile, ReadOnlyBind, WORKSPACE};
use serde_json::{Map, Value};

use super::{CpuShare, DriverCall, Runtime, inside};
use crate::InputFile;
use crate::builds::{Build, KeyMaker};
use crate::diagnostics::{self, Said};
use crate::given::Given;
use crate::typed;

/// Where a compiler leaves its product, relative to the workspace.
pub(crate) const BUILD_FOLDER: &str = ".palisade-build";
/// Where the program finds the product.
const BUILD_INSIDE: &str = "/palisade/build";
/// Where the program finds the values of its variables.
const VALUES: &str = "/palisade/variables";
/// The part of a command that stands for the arguments of its proxies.
const PROXIES: &str = "{proxies}";

/// One compilation.
#[derive(Debug)]
pub(crate) struct CompileCall<'a> {
    /// The file name of the program.
    pub(crate) source: &'a str,
    pub(crate) code: &'a str,
    /// The inputs that take part.
    pub(crate) inputs: Vec<&'a InputFile>,
    pub(crate) variables: &'a Map<String, Value>,
}

impl Runtime {
    /// Whether programs are compiled before they run.
    pub fn is_compiled(&self) -> bool {
        self.definition.compile.is_some()
    }

    /// The inputs that take part in a compilation: those with certain suffixes, and those whose name occurs in
    /// the program or in another input that takes part.
    pub(crate) fn compiled_inputs<'a>(&self, code: &str, inputs: &'a [InputFile]) -> Vec<&'a InputFile> {
        let Some(compile) = &self.definition.compile else { return Vec::new() };
        let has_ending =
            |input: &&InputFile| compile.inputs.iter().any(|ending| input.path.ends_with(ending.as_str()));
        // An input in the product's folder is not part of a product. An archive is for the program alone.
        let inputs: Vec<&InputFile> =
            inputs.iter().filter(|input| !input.unpack && !input.path.starts_with(BUILD_FOLDER)).collect();
        let mut taken: Vec<bool> = inputs.iter().map(has_ending).collect();
        loop {
            let texts: Vec<&[u8]> = inputs
                .iter()
                .zip(&taken)
                .filter(|(_, is_taken)| **is_taken)
                .map(|(input, _)| input.content.as_slice())
                .chain([code.as_bytes()])
                .collect();
            let is_named = |input: &&InputFile| {
                let name = Path::new(&input.path).file_name().map(|name| name.as_encoded_bytes().to_vec());
                name.is_some_and(|name| texts.iter().any(|text| contains(text, &name)))
            };
            let found: Vec<bool> =
                inputs.iter().zip(&taken).map(|(input, is_taken)| *is_taken || is_named(input)).collect();
            if found == taken {
                return inputs
                    .into_iter()
                    .zip(taken)
                    .filter(|(_, is_taken)| *is_taken)
                    .map(|(input, _)| input)
                    .collect();
            }
            taken = found;
        }
    }

    /// The compiler's limits, within the operator's maxima.
    pub(crate) fn compile_limits(&self, maxima: &Limits) -> Option<Limits> {
        let limits = self.definition.compile.as_ref()?.limits;
        let disk_bytes = (limits.disk_mb << 20).min(maxima.disk_bytes);
        Some(Limits {
            wall_ms: limits.timeout_ms.min(maxima.wall_ms),
            memory_bytes: (limits.memory_mb << 20).min(maxima.memory_bytes),
            cpus_milli: maxima.cpus_milli,
            processes: limits.processes.min(maxima.processes),
            disk_bytes,
            open_files: limits.open_files.min(maxima.open_files),
            ..Limits::default()
        })
    }

    /// The read-only files beside the compiler: its tool, and the declarations of the variables.
    pub(crate) fn compile_files(&self, variables: &Map<String, Value>) -> Vec<PlacedFile> {
        let mut files = self.placed_files();
        if let Some(compile) = self.definition.compile.as_ref().filter(|_| !variables.is_empty()) {
            let declared = compile.declarations.fill(&self.definition, variables);
            files.extend(
                declared
                    .into_iter()
                    .map(|(name, content)| PlacedFile { path: inside(&name), content: content.into() }),
            );
        }
        files
    }

    /// The command that compiles. Parts that refer to something absent are left out.
    pub(crate) fn compile_command(&self, call: &CompileCall<'_>) -> Vec<String> {
        let Some(compile) = &self.definition.compile else { return Vec::new() };
        let is_source =
            |input: &&InputFile| compile.sources.iter().any(|ending| input.path.ends_with(ending.as_str()));
        let sources: Vec<String> = call
            .inputs
            .iter()
            .copied()
            .filter(|input| is_source(input))
            .map(|input| format!("./{}", input.path))
            .collect();
        let source = format!("{WORKSPACE}/{}", call.source);
        let filled = self.fill(&compile.command, &DriverCall { mode: "last", source: &source });
        let mut argv = Vec::with_capacity(filled.len() + sources.len());
        for part in filled {
            if part == "{sources}" {
                argv.extend(sources.iter().cloned());
            } else if !(part.contains("{vars}") && call.variables.is_empty()) {
                let build = format!("{WORKSPACE}/{BUILD_FOLDER}");
                argv.push(
                    self.with_programs(part.replace("{build}", &build).replace("{vars}", super::INSIDE)),
                );
            }
        }
        argv
    }

    /// The command that starts the program. The part `{proxies}` becomes the arguments for its proxies.
    pub(crate) fn run_command(&self, args: &[String], given: &Given, limits: &Limits) -> Vec<String> {
        let source = self.source_path();
        let (memory_mb, cpus) = ((limits.memory_bytes >> 20).to_string(), CpuShare::of(limits).to_string());
        let filled = self.command(&DriverCall { mode: "last", source: &source });
        let fill = |part: String| {
            let part = part.replace("{build}", BUILD_INSIDE);
            part.replace("{memory_mb}", &memory_mb).replace("{cpus}", &cpus)
        };
        let mut argv = Vec::with_capacity(filled.len() + args.len());
        for part in filled {
            if part == PROXIES {
                argv.extend(given.proxies().arguments(&self.definition.environment.proxy_arguments));
            } else {
                argv.push(fill(part));
            }
        }
        argv.extend(args.iter().cloned());
        argv
    }

    /// The paths of the wall that a compiled program needs.
    pub(crate) fn run_binds(&self) -> Vec<ReadOnlyBind> {
        self.with_tools(&self.found.run_binds)
    }

    /// The product, as the program's sandbox shows it.
    pub(crate) fn run_layer(build: &Build) -> Layer {
        let (digest, path) = (build.digest.clone(), build.files.clone());
        Layer { digest, path, target: PathBuf::from(BUILD_INSIDE) }
    }

    /// The file with the values of the variables, which the program reads.
    pub(crate) fn run_files(&self, variables: &Map<String, Value>) -> Vec<PlacedFile> {
        if variables.is_empty() {
            return Vec::new();
        }
        vec![PlacedFile { path: PathBuf::from(VALUES), content: typed::encode(variables).into() }]
    }

    /// Adds everything of this runtime on which a product depends: its definition, and the toolchain as it is
    /// now. `identity` is what [`super::Runtimes::identity`] says about it.
    pub(crate) fn add_to_key(&self, key: &mut KeyMaker, identity: &str) {
        for (name, content) in self.definition.files() {
            key.add(name, content);
        }
        key.add("tool", &self.driver);
        key.add("toolchain", identity.as_bytes());
    }

    /// The errors in the compiler's output. `source` is the file name of the program.
    pub(crate) fn compile_errors(&self, output: &str, source: &str, most: usize) -> Vec<Said> {
        let Some(compile) = &self.definition.compile else { return Vec::new() };
        let found = diagnostics::find(output, &compile.diagnostics, source, most);
        found.into_iter().map(|said| said.for_program(source)).collect()
    }

    /// What to send instead, if a program that does not compile is a fragment. Other sources may have what it lacks.
    pub(crate) fn frame_remedy(&self, call: &CompileCall<'_>) -> Option<String> {
        let frame = &self.definition.compile.as_ref()?.frame;
        let has_any = |words: &Vec<String>| words.iter().any(|word| call.code.contains(word.as_str()));
        let is_fragment = call.inputs.is_empty() && !frame.needs.iter().all(has_any);
        is_fragment.then(|| frame.remedy.clone())
    }

    /// Whether a program can have that file name. To a compiler a name may mean more than to an interpreter: its
    /// ending says what the file is, and a character in front may make it an option.
    pub(crate) fn takes_name(&self, name: &str) -> bool {
        let Some(compile) = &self.definition.compile else { return true };
        let own_ending = Path::new(self.source()).extension();
        let has_ending = Path::new(name).extension() == own_ending
            || compile.sources.iter().any(|ending| name.ends_with(ending.as_str()));
        let is_plain = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-' | '.');
        has_ending
            && name.starts_with(char::is_alphanumeric)
            && name.chars().all(is_plain)
            && !compile.unusable_names.iter().any(|ending| name.ends_with(ending.as_str()))
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    !word.is_empty() && text.windows(word.len()).any(|part| part == word)
}
