# SPDX-License-Identifier: GPL-2.0-only
# Written by tools/generate.
function _uetproto_completion;
    set -l response (env _UETPROTO_COMPLETE=fish_complete COMP_WORDS=(commandline -cp) COMP_CWORD=(commandline -t) uetproto);

    for completion in $response;
        set -l metadata (string split "," $completion);

        if test $metadata[1] = "dir";
            __fish_complete_directories $metadata[2];
        else if test $metadata[1] = "file";
            __fish_complete_path $metadata[2];
        else if test $metadata[1] = "plain";
            echo $metadata[2];
        end;
    end;
end;

complete --no-files --command uetproto --arguments "(_uetproto_completion)";
