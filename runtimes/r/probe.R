# Describes this R to the host, once, outside any sandbox (docs/DRIVERS.md, "The probe").

if (getRversion() < "4.0.0") {
  message("R 4.0 or newer is needed, this is ", getRversion())
  quit(status = 1)
}

PACKAGES_MAX <- 500
SYSTEM <- c("/bin", "/sbin", "/lib", "/usr")

within_folder <- function(path, folder) path == folder | startsWith(path, paste0(sub("/+$", "", folder), "/"))

# A home, anything that contains one, or the root.
is_too_wide <- function(folder) {
  home <- Sys.getenv("HOME")
  folder == "/" || dirname(folder) == "/home" || (nzchar(home) && within_folder(home, folder))
}

quoted <- function(text) paste0('"', gsub('(["\\\\])', "\\\\\\1", text), '"')
object <- function(values) paste0("{", paste0(quoted(names(values)), ":", quoted(values), collapse = ","), "}")

home <- normalizePath(R.home())
executable <- normalizePath(file.path(home, "bin", "exec", "R"))
site <- .libPaths()[dir.exists(.libPaths())]
wanted <- unique(normalizePath(c(home, site)))
wanted <- wanted[!vapply(wanted, is_too_wide, TRUE) & !vapply(wanted, function(path) any(within_folder(path, SYSTEM)), TRUE)]
outermost <- vapply(wanted, function(path) !any(within_folder(path, setdiff(wanted, path))), TRUE)
binds <- wanted[as.logical(outermost)]
# Read at every start. The files beside it may hold what is nobody's business.
environ <- normalizePath(file.path(home, "etc", "Renviron"), mustWork = FALSE)
if (file.exists(environ) && !any(within_folder(environ, c(SYSTEM, binds)))) binds <- c(binds, environ)

env <- c(R_HOME = home, R_SHARE_DIR = R.home("share"), R_INCLUDE_DIR = R.home("include"), R_DOC_DIR = R.home("doc"),
         R_LIBS_SITE = paste(site, collapse = ":"))
# Where R was built to find its own library, if that is not a place of the system's.
if (dir.exists(file.path(home, "lib")) && !startsWith(home, "/usr/")) env["LD_LIBRARY_PATH"] <- file.path(home, "lib")

found <- installed.packages(lib.loc = site)[, "Version"]
found <- head(found[order(names(found))], PACKAGES_MAX)
found <- found[!duplicated(names(found))]
cat('{"version":', quoted(as.character(getRversion())), ',"executable":', quoted(executable),
    ',"binds":[', if (length(binds)) paste(quoted(binds), collapse = ","), '],"env":', object(env),
    ',"packages":', object(found), "}\n", sep = "")
