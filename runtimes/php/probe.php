<?php
// Describes this PHP to the host, once, outside any sandbox (docs/DRIVERS.md, "The probe").

if (PHP_MAJOR_VERSION < 8) {
    fwrite(STDERR, 'PHP 8.0 or newer is needed, this is ' . PHP_VERSION . "\n");
    exit(1);
}

const SYSTEM = ['/bin', '/sbin', '/lib', '/usr'];

function is_within(string $path, string $folder): bool
{
    return $path === $folder || str_starts_with($path, rtrim($folder, '/') . '/');
}

// A home, anything that contains one, or the root.
function is_too_wide(string $folder): bool
{
    $home = (string) getenv('HOME');
    return $folder === '/' || dirname($folder) === '/home' || ($home !== '' && is_within($home, $folder));
}

// The program, its extensions, and the files that say which ones to load.
function wanted(string $executable): array
{
    $files = array_filter(array_map('trim', explode(',', (string) php_ini_scanned_files())));
    $files[] = (string) php_ini_loaded_file();
    $folders = [dirname($executable), (string) ini_get('extension_dir')];
    foreach (array_filter($files) as $file) {
        $folders[] = dirname($file);
        $folders[] = dirname((string) realpath($file));
    }
    return array_filter(array_unique($folders), 'is_dir');
}

function binds(string $executable): array
{
    $is_fit = fn ($path) => !is_too_wide($path) && !array_filter(SYSTEM, fn ($part) => is_within($path, $part));
    $folders = array_values(array_filter(wanted($executable), $is_fit));
    $is_outermost = fn ($path) => !array_filter($folders, fn ($other) => $other !== $path && is_within($path, $other));
    return array_values(array_filter($folders, $is_outermost));
}

$packages = [];
foreach (get_loaded_extensions() as $name) {
    $packages[$name] = (string) phpversion($name);
}
ksort($packages);
$executable = (string) realpath(PHP_BINARY);
echo json_encode([
    'version' => PHP_MAJOR_VERSION . '.' . PHP_MINOR_VERSION . '.' . PHP_RELEASE_VERSION,
    'executable' => $executable,
    'binds' => binds($executable),
    'env' => (object) [],
    'packages' => (object) $packages,
]), "\n";
