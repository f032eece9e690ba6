# SPDX-License-Identifier: Apache-2.0
"""Models of the packages timm and torchvision: small ones, with few classes."""
import timm
import torchvision

from modules.case import case, classes, images

CLASSES = 5


# BatchNorm of few numbers makes losses that PyTorch itself does not reproduce in float64: images are large enough to
# leave some in the last layers, and steps are short.
SHORT = 1e-4


def timms(name, make, size=32, ci=False, lr=SHORT, **options):
    case(name, "timm", images(size), "cross_entropy", labels=classes, ci=ci, lr=lr)(
        lambda: make(num_classes=CLASSES, **options))


def visions(name, make, size=64, ci=False, lr=SHORT, **options):
    case(name, "torchvision", images(size), "cross_entropy", labels=classes, ci=ci, lr=lr)(
        lambda: make(num_classes=CLASSES, **options))


def named(architecture):
    return lambda **options: timm.create_model(architecture, pretrained=False, **options)


WIDTHS = (8, 16, 16, 32)
timms("ResNet, timm", timm.models.resnet.ResNet, 64, ci=True, block=timm.models.resnet.BasicBlock, layers=(1, 1, 1, 1),
      channels=WIDTHS, stem_width=8)
timms("ConvNeXt", timm.models.convnext.ConvNeXt, 64, ci=True, depths=(1, 1, 1, 1), dims=WIDTHS)
timms("MobileNetV3", named("mobilenetv3_small_050"), 64, drop_rate=0.0)
timms("TinyNet", named("tinynet_e"), 64, lr=1e-5, drop_rate=0.0)
timms("ViT, timm", named("vit_tiny_patch16_224"), img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2)
timms("Mixer", timm.models.mlp_mixer.MlpMixer, img_size=32, patch_size=8, num_blocks=2, embed_dim=32)
timms("CaiT", named("cait_xxs24_224"), img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2)
timms("MetaFormer", timm.models.metaformer.MetaFormer, 64, depths=(1, 1, 1, 1), dims=WIDTHS)

visions("ResNet-18", torchvision.models.resnet18, lr=2e-6)
visions("MobileNetV2", torchvision.models.mobilenet_v2, ci=True, width_mult=0.25, dropout=0.0, inverted_residual_setting=[
    [1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 1, 2]])
visions("ShuffleNetV2", torchvision.models.shufflenet_v2_x0_5, 96, lr=2e-7)
visions("SqueezeNet", torchvision.models.squeezenet1_1, lr=2e-5, dropout=0.0)


@case("EfficientNet", "torchvision", images(64), "cross_entropy", labels=classes, ci=True, lr=SHORT)
def _():
    make = torchvision.models.efficientnet
    setting = [make.MBConvConfig(1, 3, 1, 16, 16, 1, 0.5, 0.3), make.MBConvConfig(4, 3, 2, 16, 24, 2, 0.5, 0.3)]
    return make.EfficientNet(setting, dropout=0.0, stochastic_depth_prob=0.0, num_classes=CLASSES, last_channel=64)


@case("Swin", "torchvision", images(32), "cross_entropy", labels=classes)
def _():
    return torchvision.models.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.0,
                                              num_classes=CLASSES)


@case("ViT", "torchvision", images(32), "cross_entropy", labels=classes)
def _():
    return torchvision.models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=CLASSES)


@case("DenseNet", "torchvision", images(64), "cross_entropy", labels=classes, lr=SHORT)
def _():
    return torchvision.models.DenseNet(8, (2, 2), 16, num_classes=CLASSES)
